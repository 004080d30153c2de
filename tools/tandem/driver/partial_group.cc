#include "tools/tandem/driver/partial_group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/enum_check.h"
#include "common/rpc/policy_version.h"
#include "common/rpc/status_conversion.h"
#include "tools/tandem/driver/completion_experts.h"

namespace tandem::driver {
namespace {

using common::v1::FINISH_REASON_ABORTED;
using common::v1::FINISH_REASON_UNSPECIFIED;
using rollout::v1::GenerateRequest;
using rollout::v1::GenerateResponse;

bool GoesOn(const Completion& completion) {
  return completion.finish_reason == FINISH_REASON_UNSPECIFIED ||
         completion.finish_reason == FINISH_REASON_ABORTED;
}

// Checks that weights of the requested trainer sampled every token.
absl::Status CheckOrigin(const GenerateResponse& response, int64_t incarnation) {
  if (incarnation == 0) return absl::OkStatus();
  for (const common::v1::VersionSpan& span : response.version_spans()) {
    if (span.incarnation() == incarnation) continue;
    return rpc::WithReason(
        absl::FailedPreconditionError(absl::StrCat(
            "version ", span.policy_version(), " of trainer incarnation ", span.incarnation(),
            " sampled tokens for this run, whose trainer is incarnation ", incarnation,
            ": another trainer took over the rollout; its tokens are dropped")),
        "FOREIGN_WEIGHTS",
        {{"expected", absl::StrCat(incarnation)}, {"actual", absl::StrCat(span.incarnation())}});
  }
  return absl::OkStatus();
}

// Checks that the spans cover the response's tokens without a gap.
absl::Status CheckSpans(const GenerateResponse& response, int64_t last_version) {
  int64_t end = 0;
  for (const common::v1::VersionSpan& span : response.version_spans()) {
    if (span.policy_version() < 0 || span.policy_version() > rpc::kMaxPolicyVersion) {
      return absl::InternalError(absl::StrCat("a span has policy version ", span.policy_version(),
                                              ", expected 0 to ", rpc::kMaxPolicyVersion));
    }
    if (span.begin() != end || span.end() <= span.begin()) {
      return absl::InternalError(absl::StrCat("a version span begins at token ", span.begin(),
                                              " and ends at ", span.end(), ", expected ", end,
                                              " and more"));
    }
    if (span.policy_version() < last_version) {
      return absl::InternalError(absl::StrCat("tokens of version ", span.policy_version(),
                                              " follow those of version ", last_version,
                                              " in one call; expected an equal or newer version"));
    }
    last_version = span.policy_version();
    end = span.end();
  }
  if (end != response.token_ids_size()) {
    return absl::InternalError(
        absl::StrCat("version spans cover ", end, " of ", response.token_ids_size(), " tokens"));
  }
  return absl::OkStatus();
}

}  // namespace

PartialGroup::PartialGroup(GenerateRequest request)
    : request_(std::move(request)), completions_(request_.sampling().n()) {}

GenerateRequest PartialGroup::NextRequest() {
  GenerateRequest out = request_;
  last_version_.assign(completions_.size(), -1);
  const bool is_new =
      std::all_of(completions_.begin(), completions_.end(), [](const Completion& completion) {
        return completion.token_ids.empty() && GoesOn(completion);
      });
  for (size_t i = 0; i < completions_.size(); ++i) {
    Completion& completion = completions_[i];
    if (GoesOn(completion)) {
      completion.finish_reason = FINISH_REASON_UNSPECIFIED;
      completion.text.clear();
      FillUp(completion);
    }
    if (is_new) continue;
    rollout::v1::BegunSample* begun = out.add_begun();
    begun->set_index(static_cast<int32_t>(i));
    begun->mutable_token_ids()->Add(completion.token_ids.begin(), completion.token_ids.end());
    begun->set_finish_reason(completion.finish_reason);
  }
  return out;
}

absl::Status PartialGroup::Append(const GenerateResponse& response) {
  if (absl::Status known = rpc::CheckAnswerEnums(response); !known.ok()) return known;
  if (response.index() < 0 || response.index() >= static_cast<int>(completions_.size())) {
    return absl::InternalError(
        absl::StrCat("sample index ", response.index(), " of ", completions_.size(), " samples"));
  }
  Completion& completion = completions_[response.index()];
  const bool want_processed = request_.sampling().processed_logprobs();
  if (response.logprobs_size() != response.token_ids_size() ||
      (want_processed && response.processed_logprobs_size() != response.token_ids_size())) {
    return absl::InternalError(absl::StrCat(response.token_ids_size(), " tokens came with ",
                                            response.logprobs_size(), " log-probs"));
  }
  if (!GoesOn(completion)) {
    return absl::InternalError(
        absl::StrCat("sample ", response.index(), " continues past its end"));
  }
  if (absl::Status status = CheckOrigin(response, request_.incarnation()); !status.ok()) {
    return status;
  }
  int64_t& last_version = last_version_[response.index()];
  if (absl::Status status = CheckSpans(response, last_version); !status.ok()) return status;
  const int64_t offset = static_cast<int64_t>(completion.token_ids.size());
  completion.token_ids.insert(completion.token_ids.end(), response.token_ids().begin(),
                              response.token_ids().end());
  completion.logprobs.insert(completion.logprobs.end(), response.logprobs().begin(),
                             response.logprobs().end());
  completion.processed_logprobs.insert(completion.processed_logprobs.end(),
                                       response.processed_logprobs().begin(),
                                       response.processed_logprobs().end());
  completion.text += response.text();
  for (common::v1::VersionSpan span : response.version_spans()) {
    last_version = span.policy_version();
    span.set_begin(span.begin() + offset);
    span.set_end(span.end() + offset);
    if (!completion.version_spans.empty() &&
        completion.version_spans.back().policy_version() == span.policy_version() &&
        completion.version_spans.back().incarnation() == span.incarnation()) {
      completion.version_spans.back().set_end(span.end());
    } else {
      completion.version_spans.push_back(span);
    }
  }
  completion.finish_reason = response.finish_reason();
  if (response.num_prompt_tokens() > 0) {
    completion.num_prompt_tokens = response.num_prompt_tokens();
    completion.num_cached_tokens = response.num_cached_tokens();
  }
  if (completion.prompt_routed_experts.empty()) {
    completion.prompt_routed_experts = response.prompt_routed_experts();
  }
  completion.routed_experts += response.routed_experts();
  const size_t most = BytesPerToken(completion) * completion.token_ids.size();
  if (completion.routed_experts.size() > most) {
    return absl::InternalError(absl::StrCat(completion.token_ids.size(), " tokens came with ",
                                            completion.routed_experts.size(),
                                            " bytes of experts, expected at most ", most));
  }
  // The values that the server chose apply to the rest as well.
  if (!request_.sampling().has_seed() && response.num_prompt_tokens() > 0) {
    request_.mutable_sampling()->set_seed(response.seed());
  }
  return absl::OkStatus();
}

bool PartialGroup::ended() const {
  return std::none_of(completions_.begin(), completions_.end(), [](const Completion& completion) {
    return completion.finish_reason == FINISH_REASON_UNSPECIFIED;
  });
}

bool PartialGroup::aborted() const {
  return std::any_of(completions_.begin(), completions_.end(), [](const Completion& completion) {
    return completion.finish_reason == FINISH_REASON_ABORTED;
  });
}

void PartialGroup::Abort() {
  for (Completion& completion : completions_) {
    if (completion.finish_reason == FINISH_REASON_UNSPECIFIED) {
      completion.finish_reason = FINISH_REASON_ABORTED;
    }
  }
}

int64_t PartialGroup::num_partial_tokens() const {
  int64_t count = 0;
  for (const Completion& completion : completions_) {
    if (GoesOn(completion)) count += static_cast<int64_t>(completion.token_ids.size());
  }
  return count;
}

int64_t PartialGroup::cost() const {
  int64_t cost = request_.token_ids().ids_size();
  for (const Completion& completion : completions_) {
    if (!GoesOn(completion)) continue;
    cost += std::max<int64_t>(
        0, request_.sampling().max_tokens() - static_cast<int64_t>(completion.token_ids.size()));
  }
  return cost;
}

}  // namespace tandem::driver
