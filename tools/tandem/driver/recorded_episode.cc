#include "tools/tandem/driver/recorded_episode.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/enum_check.h"
#include "common/rpc/policy_version.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/begins_with.h"
#include "tools/tandem/driver/completion_experts.h"
#include "tools/tandem/driver/recorded_experts.h"

namespace tandem::driver {
namespace {

using rollout::v1::RecordedCall;

// Calls that extend one another.
struct CallSequence {
  std::vector<int> calls;           // indices
  std::vector<uint32_t> token_ids;  // of the last call's prompt and what it sampled
  std::vector<std::string> image_digests;
};

absl::Status CheckRecord(const RecordedCall& call, int64_t incarnation) {
  RETURN_IF_ERROR(rpc::CheckAnswerEnums(call));
  const int size = call.token_ids_size();
  if (call.prompt_token_ids_size() == 0 || size == 0 || call.logprobs_size() != size ||
      call.processed_logprobs_size() != size) {
    return absl::InternalError(
        absl::StrCat("expected a prompt, tokens and two log-probs for each of them, found ",
                     call.prompt_token_ids_size(), " prompt tokens, ", size, " tokens, ",
                     call.logprobs_size(), " and ", call.processed_logprobs_size(), " log-probs"));
  }
  int64_t end = 0;
  for (const common::v1::VersionSpan& span : call.version_spans()) {
    RETURN_IF_ERROR(rpc::CheckReportedVersion("a recorded call", span.policy_version()));
    if (span.begin() != end || span.end() <= span.begin() || span.end() > size) {
      return absl::InternalError(absl::StrCat("a version span covers tokens ", span.begin(), " to ",
                                              span.end(), " of ", size, ", expected one from ", end,
                                              " on"));
    }
    end = span.end();
    if (incarnation == 0 || span.incarnation() == incarnation) continue;
    return rpc::WithReason(
        absl::FailedPreconditionError(absl::StrCat(
            "version ", span.policy_version(), " of trainer incarnation ", span.incarnation(),
            " sampled tokens for this run, whose trainer is incarnation ", incarnation)),
        "FOREIGN_WEIGHTS");
  }
  if (end == size) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("version spans cover ", end, " of ", size, " tokens"));
}

bool Begins(const CallSequence& sequence, const RecordedCall& call) {
  return BeginsWith(call.prompt_token_ids(), sequence.token_ids) &&
         BeginsWith(call.image_digests(), sequence.image_digests);
}

std::vector<CallSequence> SequencesOfCalls(const std::vector<RecordedCall>& calls) {
  std::vector<CallSequence> out;
  for (size_t i = 0; i < calls.size(); ++i) {
    const RecordedCall& call = calls[i];
    CallSequence* longest = nullptr;
    for (CallSequence& sequence : out) {
      const bool is_longer =
          longest == nullptr || sequence.token_ids.size() > longest->token_ids.size();
      if (is_longer && Begins(sequence, call)) longest = &sequence;
    }
    if (longest == nullptr) longest = &out.emplace_back();
    longest->calls.push_back(static_cast<int>(i));
    longest->image_digests.assign(call.image_digests().begin(), call.image_digests().end());
    longest->token_ids.assign(call.prompt_token_ids().begin(), call.prompt_token_ids().end());
    longest->token_ids.insert(longest->token_ids.end(), call.token_ids().begin(),
                              call.token_ids().end());
  }
  return out;
}

// Appends the experts of the last tokens of `out`, a call's prompt and sampled tokens from `begin` on.
// The call also tells those of the token before, the last one of an earlier call.
absl::Status AddExperts(const RecordedExperts& experts, int call, int64_t begin, Completion& out) {
  const size_t each = experts.bytes_per_token();
  if (each == 0) return absl::OkStatus();
  const int64_t first = std::max<int64_t>(0, begin - 1);
  ASSIGN_OR_RETURN(const std::string known, experts.Of(call, first));
  const size_t end = out.token_ids.size() * each;
  if (begin > 0) FillUnknown(known, each, end - known.size(), out.routed_experts);
  out.routed_experts.append(known, static_cast<size_t>(begin - first) * each);
  return absl::OkStatus();
}

// Appends tokens of a prompt from `begin` on, and images from `first_image` on.
absl::Status AddGiven(const RecordedCall& call, int64_t begin, int first_image,
                      common::v1::SegmentKind kind, const StepImages& images, Completion& out) {
  const int64_t size = call.prompt_token_ids_size() - begin;
  if (size == 0 && first_image == call.image_digests_size()) return absl::OkStatus();
  if (size == 0) return absl::InternalError("a recorded call has images without tokens");
  out.token_ids.insert(out.token_ids.end(), call.prompt_token_ids().begin() + begin,
                       call.prompt_token_ids().end());
  out.logprobs.resize(out.token_ids.size());
  out.processed_logprobs.resize(out.token_ids.size());
  EpisodeSegment& segment = out.segments.emplace_back(kind, size, 0.0);
  for (int i = first_image; i < call.image_digests_size(); ++i) {
    const auto found = images.find(call.image_digests(i));
    if (found == images.end()) {
      return absl::InternalError(absl::StrCat("a recorded call names the image with the SHA-256 ",
                                              absl::BytesToHexString(call.image_digests(i)),
                                              ", which did not come along"));
    }
    segment.images.push_back(found->second);
  }
  return absl::OkStatus();
}

void AddCall(const RecordedCall& call, Completion& out) {
  const auto begin = static_cast<int64_t>(out.token_ids.size());
  out.token_ids.insert(out.token_ids.end(), call.token_ids().begin(), call.token_ids().end());
  out.logprobs.insert(out.logprobs.end(), call.logprobs().begin(), call.logprobs().end());
  out.processed_logprobs.insert(out.processed_logprobs.end(), call.processed_logprobs().begin(),
                                call.processed_logprobs().end());
  for (common::v1::VersionSpan span : call.version_spans()) {
    span.set_begin(span.begin() + begin);
    span.set_end(span.end() + begin);
    out.version_spans.push_back(std::move(span));
  }
  out.segments.push_back({common::v1::SEGMENT_KIND_SAMPLED, call.token_ids_size(), 0});
}

}  // namespace

absl::StatusOr<Completion> EpisodeOfCalls(const std::vector<RecordedCall>& calls,
                                          int64_t incarnation, const StepImages& images) {
  if (calls.empty()) {
    return absl::InvalidArgumentError(
        "the agent made no call in its session: its client has to use OPENAI_BASE_URL and "
        "OPENAI_API_KEY");
  }
  Completion out;
  for (const RecordedCall& call : calls) {
    RETURN_IF_ERROR(CheckRecord(call, incarnation));
    if (out.facts.num_turns++ == 0) continue;
    out.facts.num_prompt_tokens += call.prompt_token_ids_size();
    out.facts.num_cached_tokens += call.num_cached_tokens();
  }
  ASSIGN_OR_RETURN(const RecordedExperts experts, RecordedExperts::Of(calls));
  for (const CallSequence& sequence : SequencesOfCalls(calls)) {
    int64_t length = 0;
    int num_images = 0;
    for (const int index : sequence.calls) {
      const RecordedCall& call = calls[index];
      RETURN_IF_ERROR(AddGiven(
          call, length, num_images,
          length == 0 ? common::v1::SEGMENT_KIND_PROMPT : common::v1::SEGMENT_KIND_ENVIRONMENT,
          images, out));
      AddCall(call, out);
      RETURN_IF_ERROR(AddExperts(experts, index, length, out));
      num_images = call.image_digests_size();
      length = call.prompt_token_ids_size() + call.token_ids_size();
    }
  }
  out.text = calls.back().text();
  out.finish_reason = calls.back().finish_reason();
  const bool is_aborted = std::any_of(calls.begin(), calls.end(), [](const RecordedCall& call) {
    return call.finish_reason() == common::v1::FINISH_REASON_ABORTED;
  });
  if (is_aborted) out.finish_reason = common::v1::FINISH_REASON_ABORTED;
  return out;
}

}  // namespace tandem::driver
