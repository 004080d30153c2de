#include "services/trainer/data/sample_validation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/teacher.h"
#include "common/model/routed_experts.h"
#include "common/rewards/reward_range.h"
#include "common/rpc/policy_version.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"

namespace tandem::trainer {
namespace {

using common::v1::Segment;

// A log-prob is at most 0; kernels may round a certain token's a little above it.
constexpr float kLargestLogProb = 1e-3f;

absl::Status CheckLength(absl::string_view place, absl::string_view list, int length,
                         int num_tokens) {
  if (length == 0 || length == num_tokens) return absl::OkStatus();
  return rpc::InvalidField(absl::StrCat(place, ".", list),
                           absl::StrCat("expected one for each of the ", num_tokens,
                                        " token_ids, or none; found ", length));
}

// Whose weights sampled a span.
absl::Status CheckOrigin(const common::v1::VersionSpan& span, const std::string& at,
                         const std::vector<int64_t>& known) {
  RETURN_IF_ERROR(rpc::CheckPolicyVersion(at + ".policy_version", span.policy_version()));
  RETURN_IF_ERROR(rpc::CheckIncarnation(at + ".incarnation", span.incarnation()));
  if (span.incarnation() == 0 || known.empty() ||
      std::find(known.begin(), known.end(), span.incarnation()) != known.end()) {
    return absl::OkStatus();
  }
  return rpc::WithReason(
      absl::FailedPreconditionError(
          absl::StrCat(at, ": the tokens were sampled with version ", span.policy_version(),
                       " of another trainer, incarnation ", span.incarnation(),
                       "; this is incarnation ", known.front(),
                       ", which trains only on its own samples and on those of the checkpoint it "
                       "resumed. Publish this trainer's weights and sample again")),
      "FOREIGN_SAMPLES",
      {{"expected", absl::StrCat(known.front())}, {"actual", absl::StrCat(span.incarnation())}});
}

absl::Status CheckVersionSpans(const Segment& segment, absl::string_view place,
                               const SampleLimits& limits) {
  int64_t expected = 0;
  for (int i = 0; i < segment.version_spans_size(); ++i) {
    const common::v1::VersionSpan& span = segment.version_spans(i);
    if (span.begin() != expected || span.end() <= span.begin()) {
      return rpc::InvalidField(
          absl::StrCat(place, ".version_spans[", i, "]"),
          absl::StrCat("expected a span that begins at ", expected, " and is not empty; found [",
                       span.begin(), ", ", span.end(), ")"));
    }
    RETURN_IF_ERROR(
        CheckOrigin(span, absl::StrCat(place, ".version_spans[", i, "]"), limits.incarnations));
    expected = span.end();
  }
  if (segment.version_spans_size() > 0 && expected != segment.token_ids_size()) {
    return rpc::InvalidField(absl::StrCat(place, ".version_spans"),
                             absl::StrCat("expected to end at ", segment.token_ids_size(),
                                          ", the number of token_ids; found ", expected));
  }
  return absl::OkStatus();
}

// Written so that NaN is refused as well.
bool IsLogProb(float value) { return value <= kLargestLogProb && !std::isinf(value); }

std::string ExpectedLogProb(float found) {
  return absl::StrCat("expected a finite log-probability, at most 0; found ", found);
}

absl::Status ValidateTeacher(const Segment& segment, absl::string_view place,
                             const SampleLimits& limits) {
  const int num_tokens = segment.token_ids_size();
  RETURN_IF_ERROR(
      CheckLength(place, "teacher_logprobs", segment.teacher_logprobs_size(), num_tokens));
  for (int i = 0; i < segment.teacher_logprobs_size(); ++i) {
    if (IsLogProb(segment.teacher_logprobs(i))) continue;
    return rpc::InvalidField(absl::StrCat(place, ".teacher_logprobs[", i, "]"),
                             ExpectedLogProb(segment.teacher_logprobs(i)));
  }
  if (limits.needs_teacher_logprobs && segment.teacher_logprobs_size() < num_tokens) {
    return rpc::InvalidField(
        absl::StrCat(place, ".teacher_logprobs"),
        "expected the teacher's log-probs, because the trainer's configuration "
        "has a teacher; found none");
  }
  if (segment.teacher_top_ids_size() != segment.teacher_top_logprobs_size()) {
    return rpc::InvalidField(
        absl::StrCat(place, ".teacher_top_logprobs"),
        absl::StrCat("expected one for each of the ", segment.teacher_top_ids_size(),
                     " teacher_top_ids; found ", segment.teacher_top_logprobs_size()));
  }
  if (limits.num_teacher_top > 0 &&
      segment.teacher_top_ids_size() != limits.num_teacher_top * num_tokens) {
    return rpc::InvalidField(
        absl::StrCat(place, ".teacher_top_ids"),
        absl::StrCat("expected ", limits.num_teacher_top, " for each of the ", num_tokens,
                     " token_ids (teacher.top_k); found ", segment.teacher_top_ids_size()));
  }
  const int num_top = segment.teacher_top_ids_size();
  if (num_top > config::kMaxTeacherTopK * num_tokens ||
      (num_tokens > 0 && num_top % num_tokens != 0)) {
    return rpc::InvalidField(
        absl::StrCat(place, ".teacher_top_ids"),
        absl::StrCat("expected as many for each of the ", num_tokens, " token_ids, at most ",
                     config::kMaxTeacherTopK, "; found ", num_top, " in all"));
  }
  for (int i = 0; i < segment.teacher_top_ids_size(); ++i) {
    if (segment.teacher_top_ids(i) >= static_cast<uint64_t>(limits.vocab_size)) {
      return rpc::InvalidField(absl::StrCat(place, ".teacher_top_ids[", i, "]"),
                               absl::StrCat(segment.teacher_top_ids(i),
                                            " is outside the vocabulary of ", limits.vocab_size));
    }
    if (!IsLogProb(segment.teacher_top_logprobs(i))) {
      return rpc::InvalidField(absl::StrCat(place, ".teacher_top_logprobs[", i, "]"),
                               ExpectedLogProb(segment.teacher_top_logprobs(i)));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateSampled(const Segment& segment, absl::string_view place,
                             const SampleLimits& limits) {
  const int num_tokens = segment.token_ids_size();
  RETURN_IF_ERROR(CheckLength(place, "logprobs", segment.logprobs_size(), num_tokens));
  RETURN_IF_ERROR(CheckLength(place, "loss_mask", segment.loss_mask_size(), num_tokens));
  RETURN_IF_ERROR(CheckLength(place, "advantages", segment.advantages_size(), num_tokens));
  RETURN_IF_ERROR(CheckLength(place, "token_rewards", segment.token_rewards_size(), num_tokens));
  RETURN_IF_ERROR(CheckVersionSpans(segment, place, limits));
  for (int i = 0; i < segment.logprobs_size(); ++i) {
    if (IsLogProb(segment.logprobs(i))) continue;
    return rpc::InvalidField(absl::StrCat(place, ".logprobs[", i, "]"),
                             ExpectedLogProb(segment.logprobs(i)));
  }
  for (int i = 0; i < segment.advantages_size(); ++i) {
    if (!rewards::IsReward(segment.advantages(i))) {
      return rpc::InvalidField(absl::StrCat(place, ".advantages[", i, "]"),
                               rewards::ExpectedReward(segment.advantages(i)));
    }
  }
  for (int i = 0; i < segment.token_rewards_size(); ++i) {
    if (!rewards::IsReward(segment.token_rewards(i))) {
      return rpc::InvalidField(absl::StrCat(place, ".token_rewards[", i, "]"),
                               rewards::ExpectedReward(segment.token_rewards(i)));
    }
  }
  if (limits.needs_rollout_logprobs && segment.logprobs_size() == 0 && num_tokens > 0) {
    return rpc::InvalidField(
        absl::StrCat(place, ".logprobs"),
        "expected the rollout's log-probs, which algorithm.rollout_correction (bypass_mode, "
        "rollout_is, which is token by default in the modes one_step_off and async, rollout_rs) "
        "compares with the trainer's, and teacher.mode advantage with the teacher's; found none");
  }
  return ValidateTeacher(segment, place, limits);
}

// Validates a given segment: it has none of the fields that only sampled segments have.
absl::Status ValidateGiven(const Segment& segment, absl::string_view place) {
  const absl::string_view list = segment.logprobs_size() > 0               ? "logprobs"
                                 : segment.version_spans_size() > 0        ? "version_spans"
                                 : segment.loss_mask_size() > 0            ? "loss_mask"
                                 : segment.advantages_size() > 0           ? "advantages"
                                 : segment.token_rewards_size() > 0        ? "token_rewards"
                                 : segment.teacher_logprobs_size() > 0     ? "teacher_logprobs"
                                 : segment.teacher_top_ids_size() > 0      ? "teacher_top_ids"
                                 : segment.teacher_top_logprobs_size() > 0 ? "teacher_top_logprobs"
                                                                           : "";
  if (list.empty()) return absl::OkStatus();
  return rpc::InvalidField(absl::StrCat(place, ".", list),
                           "expected none, because the segment was not sampled; set kind to "
                           "SEGMENT_KIND_SAMPLED for tokens to train on");
}

absl::Status ValidateExperts(const Segment& segment, absl::string_view place,
                             const SampleLimits& limits) {
  const auto at = [place] { return absl::StrCat(place, ".routed_experts"); };
  const int64_t num_tokens = segment.token_ids_size();
  if (segment.routed_experts().empty()) {
    const bool needs = limits.needs_routed_experts && num_tokens > 0 &&
                       segment.kind() == common::v1::SEGMENT_KIND_SAMPLED;
    if (!needs) return absl::OkStatus();
    return rpc::InvalidField(at(),
                             "expected the experts that sampling routed the tokens to "
                             "(GenerateRequest.return_routed_experts), because actor.router_replay "
                             "is r3; found none");
  }
  if (!limits.routed_layout.has_value()) {
    return rpc::InvalidField(at(), "expected none, because the model has no experts to route to");
  }
  const int64_t bytes = num_tokens * limits.routed_layout->bytes_per_token();
  if (static_cast<int64_t>(segment.routed_experts().size()) != bytes) {
    return rpc::InvalidField(
        at(), absl::StrCat("expected ", limits.routed_layout->bytes_per_token(),
                           " bytes for each of the ", num_tokens, " token_ids; found ",
                           segment.routed_experts().size()));
  }
  std::vector<uint16_t> experts;
  model::AppendExperts(segment.routed_experts(), experts);
  const absl::Status known = limits.routed_layout->Check(experts);
  return known.ok() ? known : rpc::InvalidField(at(), known.message());
}

absl::Status ValidateRewardParts(const common::v1::Sample& sample, absl::string_view place) {
  std::set<absl::string_view> names;
  for (int i = 0; i < sample.reward_parts_size(); ++i) {
    const common::v1::RewardPart& part = sample.reward_parts(i);
    const std::string at = absl::StrCat(place, ".reward_parts[", i, "]");
    if (part.name().empty() || !names.insert(part.name()).second) {
      return rpc::InvalidField(
          at + ".name", absl::StrCat("expected a name that is unique in the sample; found \"",
                                     part.name(), "\""));
    }
    for (const auto& [field, value] :
         {std::pair("value", part.value()), {"weight", part.weight()}}) {
      if (rewards::IsReward(value)) continue;
      return rpc::InvalidField(absl::StrCat(at, ".", field), rewards::ExpectedReward(value));
    }
  }
  return absl::OkStatus();
}

// The names and weights, in order of names.
std::map<std::string, double> WeightsOf(const common::v1::Sample& sample) {
  std::map<std::string, double> weights;
  for (const common::v1::RewardPart& part : sample.reward_parts()) {
    weights[part.name()] = part.weight();
  }
  return weights;
}

std::string Describe(const std::map<std::string, double>& weights) {
  if (weights.empty()) return "none";
  return absl::StrJoin(weights, ", ", [](std::string* out, const auto& part) {
    absl::StrAppend(out, part.first, " (weight ", part.second, ")");
  });
}

}  // namespace

absl::Status CheckSameRewardParts(const common::v1::Sample& first, const common::v1::Sample& sample,
                                  absl::string_view place) {
  const std::map<std::string, double> expected = WeightsOf(first);
  const std::map<std::string, double> found = WeightsOf(sample);
  if (expected == found) return absl::OkStatus();
  return rpc::InvalidField(
      absl::StrCat(place, ".reward_parts"),
      absl::StrCat("expected the parts of samples[0], ", Describe(expected), "; sample \"",
                   sample.sample_id(), "\" has ", Describe(found),
                   ". algorithm.adv_estimator gdpo normalises each reward over the samples of a "
                   "prompt, so every reward has to judge every sample"));
}

absl::Status ValidateSample(const common::v1::Sample& sample, absl::string_view place,
                            const SampleLimits& limits) {
  int64_t num_tokens = 0;
  int num_with_advantages = 0;
  int num_without = 0;
  for (int s = 0; s < sample.segments_size(); ++s) {
    const Segment& segment = sample.segments(s);
    const std::string at = absl::StrCat(place, ".segments[", s, "]");
    for (int i = 0; i < segment.token_ids_size(); ++i) {
      if (segment.token_ids(i) >= static_cast<uint64_t>(limits.vocab_size)) {
        return rpc::InvalidField(absl::StrCat(at, ".token_ids[", i, "]"),
                                 absl::StrCat(segment.token_ids(i),
                                              " is outside the vocabulary of ", limits.vocab_size));
      }
    }
    switch (segment.kind()) {
      case common::v1::SEGMENT_KIND_SAMPLED:
        RETURN_IF_ERROR(ValidateSampled(segment, at, limits));
        if (segment.token_ids_size() > 0) {
          ++(segment.advantages_size() > 0 ? num_with_advantages : num_without);
        }
        break;
      case common::v1::SEGMENT_KIND_PROMPT:
      case common::v1::SEGMENT_KIND_ENVIRONMENT:
        RETURN_IF_ERROR(ValidateGiven(segment, at));
        break;
      default:
        return rpc::InvalidField(
            absl::StrCat(at, ".kind"),
            absl::StrCat("expected SEGMENT_KIND_PROMPT, SEGMENT_KIND_SAMPLED or "
                         "SEGMENT_KIND_ENVIRONMENT; found ",
                         static_cast<int>(segment.kind())));
    }
    RETURN_IF_ERROR(ValidateExperts(segment, at, limits));
    num_tokens += segment.token_ids_size();
  }
  if (num_tokens == 0) {
    return rpc::InvalidField(absl::StrCat(place, ".segments"), "expected tokens; found none");
  }
  if (num_tokens > limits.max_position_embeddings) {
    return rpc::InvalidField(
        absl::StrCat(place, ".segments"),
        absl::StrCat("expected at most ", limits.max_position_embeddings,
                     " tokens in all (max_position_embeddings); found ", num_tokens));
  }
  if (!std::isfinite(sample.temperature()) || sample.temperature() < 0) {
    return rpc::InvalidField(absl::StrCat(place, ".temperature"),
                             absl::StrCat("expected a number >= 0; found ", sample.temperature()));
  }
  if (!rewards::IsReward(sample.reward())) {
    return rpc::InvalidField(absl::StrCat(place, ".reward"),
                             rewards::ExpectedReward(sample.reward()));
  }
  if (sample.has_baseline_reward() && !rewards::IsReward(sample.baseline_reward())) {
    return rpc::InvalidField(absl::StrCat(place, ".baseline_reward"),
                             rewards::ExpectedReward(sample.baseline_reward()));
  }
  RETURN_IF_ERROR(ValidateRewardParts(sample, place));
  if (!limits.needs_advantages) return absl::OkStatus();
  if (num_with_advantages > 0 && num_without > 0) {
    return rpc::InvalidField(absl::StrCat(place, ".segments"),
                             "expected advantages on all sampled segments or on none; found both");
  }
  if (limits.needs_baseline_reward && num_with_advantages == 0 && !sample.has_baseline_reward()) {
    return rpc::InvalidField(absl::StrCat(place, ".baseline_reward"),
                             "expected the reward of the greedy completion, the baseline of "
                             "algorithm.adv_estimator remax; found none");
  }
  if (limits.needs_reward_parts && num_with_advantages == 0 && sample.reward_parts().empty()) {
    return rpc::InvalidField(
        absl::StrCat(place, ".reward_parts"),
        absl::StrCat("expected the rewards that algorithm.adv_estimator gdpo normalises one by one "
                     "(list them in reward.rewards); sample \"",
                     sample.sample_id(), "\" has none"));
  }
  return absl::OkStatus();
}

}  // namespace tandem::trainer
