#include "services/rollout/requests/convert.h"

#include <cstdint>
#include <iterator>
#include <string>
#include <utility>

#include "common/rpc/enum_check.h"
#include "common/rpc/request_id.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"

namespace tandem::rollout {
namespace {

common::v1::FinishReason ToProto(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return common::v1::FINISH_REASON_STOP;
    case FinishReason::kLength:
      return common::v1::FINISH_REASON_LENGTH;
    case FinishReason::kAborted:
      return common::v1::FINISH_REASON_ABORTED;
    case FinishReason::kNone:
      break;
  }
  return common::v1::FINISH_REASON_UNSPECIFIED;
}

// Little endian, as in Segment.routed_experts.
std::string BytesOf(const std::vector<uint16_t>& experts) {
  std::string bytes;
  bytes.reserve(2 * experts.size());
  for (const uint16_t expert : experts) {
    bytes.push_back(static_cast<char>(expert & 0xFF));
    bytes.push_back(static_cast<char>(expert >> 8));
  }
  return bytes;
}

template <typename T>
void Append(std::vector<T> from, std::vector<T>& to) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

absl::StatusOr<GenerationRequest> FromProto(const v1::GenerateRequest& request,
                                            const tokenizer::Tokenizer* tokenizer) {
  RETURN_IF_ERROR(rpc::CheckEnums(request));
  RETURN_IF_ERROR(rpc::CheckRequestId(request.request_id()));
  GenerationRequest out;
  out.id = request.request_id();
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kTokenIds:
      out.prompt_ids.assign(request.token_ids().ids().begin(), request.token_ids().ids().end());
      break;
    case v1::GenerateRequest::kText: {
      if (!request.images().empty()) {
        return rpc::InvalidField(
            "images", "a text has no place for them; send token_ids with their placeholders");
      }
      if (tokenizer == nullptr) {
        return rpc::InvalidField(
            "text",
            "text needs a tokenizer, and the model's folder has no tokenizer.json; send "
            "token_ids");
      }
      auto ids = tokenizer->Encode(request.text(), /*add_special_tokens=*/true);
      if (!ids.ok()) return rpc::InvalidField("text", ids.status().message());
      out.prompt_ids = *std::move(ids);
      if (out.prompt_ids.empty()) {
        return rpc::InvalidField("text", "expected a prompt, found no tokens");
      }
      break;
    }
    case v1::GenerateRequest::PROMPT_NOT_SET:
      return rpc::InvalidField("prompt", "expected token_ids or text, found neither");
  }
  const v1::SamplingParams& sampling = request.sampling();
  if (sampling.has_temperature()) out.filter.temperature = sampling.temperature();
  if (sampling.has_top_k()) out.filter.top_k = sampling.top_k();
  if (sampling.has_top_p()) out.filter.top_p = sampling.top_p();
  if (sampling.has_min_p()) out.filter.min_p = sampling.min_p();
  if (sampling.has_presence_penalty()) out.penalties.presence = sampling.presence_penalty();
  if (sampling.has_frequency_penalty()) out.penalties.frequency = sampling.frequency_penalty();
  if (sampling.has_repetition_penalty()) out.penalties.repetition = sampling.repetition_penalty();
  for (const auto& [id, bias] : sampling.logit_bias()) {
    out.penalties.logit_bias.emplace_back(static_cast<int32_t>(id), bias);
  }
  if (sampling.has_seed()) out.seed = sampling.seed();
  if (sampling.has_n()) out.n = sampling.n();
  if (sampling.has_max_tokens()) out.max_tokens = sampling.max_tokens();
  if (sampling.has_min_tokens()) out.min_tokens = sampling.min_tokens();
  out.stop_token_ids.assign(sampling.stop_token_ids().begin(), sampling.stop_token_ids().end());
  out.stop.assign(sampling.stop().begin(), sampling.stop().end());
  if (sampling.has_ignore_eos()) out.ignore_eos = sampling.ignore_eos();
  out.return_text = request.return_text();
  out.stream = request.stream();
  out.return_routed_experts = request.return_routed_experts();
  out.priority = request.priority();
  out.client_id = request.client_id();
  for (const v1::BegunSample& begun : request.begun()) {
    const common::v1::FinishReason reason = begun.finish_reason();
    if (reason == common::v1::FINISH_REASON_ABORTED) {
      return rpc::InvalidField("begun.finish_reason",
                               "expected STOP, LENGTH or unset, found ABORTED; leave it unset to "
                               "continue an aborted sample");
    }
    if (reason == common::v1::FINISH_REASON_MAX_TURNS) {
      return rpc::InvalidField("begun.finish_reason",
                               "expected STOP, LENGTH or unset, found MAX_TURNS, which ends "
                               "episodes and no request");
    }
    out.begun.push_back({begun.index(),
                         {begun.token_ids().begin(), begun.token_ids().end()},
                         reason != common::v1::FINISH_REASON_UNSPECIFIED});
  }
  return out;
}

std::vector<ImageFile> ImageFilesOf(
    const google::protobuf::RepeatedPtrField<common::v1::Image>& images) {
  std::vector<ImageFile> files;
  for (const common::v1::Image& image : images) {
    files.push_back(std::make_shared<const std::string>(image.data()));
  }
  return files;
}

ScoreRequest FromProto(const v1::ScoreRequest& request) {
  ScoreRequest out;
  out.token_ids.assign(request.token_ids().begin(), request.token_ids().end());
  if (request.has_temperature()) out.temperature = request.temperature();
  out.num_top_logprobs = request.num_top_logprobs();
  out.first_scored = request.first_scored_token();
  return out;
}

v1::GenerateResponse ToProto(SampleChunk chunk, const std::string& request_id,
                             bool processed_logprobs) {
  v1::GenerateResponse out;
  out.set_request_id(request_id);
  out.set_index(chunk.index);
  out.mutable_token_ids()->Add(chunk.token_ids.begin(), chunk.token_ids.end());
  out.mutable_logprobs()->Add(chunk.logprobs.begin(), chunk.logprobs.end());
  if (processed_logprobs) {
    out.mutable_processed_logprobs()->Add(chunk.processed_logprobs.begin(),
                                          chunk.processed_logprobs.end());
  }
  out.set_text(std::move(chunk.text));
  for (const VersionSpan& span : chunk.version_spans) {
    common::v1::VersionSpan* to = out.add_version_spans();
    to->set_policy_version(span.policy_version);
    to->set_begin(span.begin);
    to->set_end(span.end);
    to->set_incarnation(span.incarnation);
  }
  out.set_finish_reason(ToProto(chunk.finish_reason));
  if (chunk.first) {
    out.set_num_prompt_tokens(chunk.num_prompt_tokens);
    out.set_num_cached_tokens(chunk.num_cached_tokens);
    out.set_seed(chunk.seed);
    out.set_prompt_routed_experts(BytesOf(chunk.prompt_routed_experts));
  }
  out.set_routed_experts(BytesOf(chunk.routed_experts));
  return out;
}

void Merge(SampleChunk next, SampleChunk& chunk) {
  const int64_t offset = static_cast<int64_t>(chunk.token_ids.size());
  Append(std::move(next.token_ids), chunk.token_ids);
  Append(std::move(next.logprobs), chunk.logprobs);
  Append(std::move(next.processed_logprobs), chunk.processed_logprobs);
  Append(std::move(next.top_logprobs), chunk.top_logprobs);
  Append(std::move(next.ranks), chunk.ranks);
  Append(std::move(next.routed_experts), chunk.routed_experts);
  const auto text_offset = static_cast<int64_t>(chunk.text.size());
  for (const TextSpan& span : next.special) {
    chunk.special.push_back({span.begin + text_offset, span.end + text_offset});
  }
  chunk.text += next.text;
  chunk.stop_string = std::move(next.stop_string);
  for (const VersionSpan& span : next.version_spans) {
    if (!chunk.version_spans.empty() &&
        chunk.version_spans.back().IsOf(span.policy_version, span.incarnation)) {
      chunk.version_spans.back().end = span.end + offset;
    } else {
      chunk.version_spans.push_back(
          {span.policy_version, span.begin + offset, span.end + offset, span.incarnation});
    }
  }
  chunk.finish_reason = next.finish_reason;
}

}  // namespace tandem::rollout
