#include "tools/tandem/driver/driver_state.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/rpc/policy_version.h"
#include "common/status/status_macros.h"

namespace tandem::driver {

v1::Completion ToProto(const Completion& completion) {
  v1::Completion out;
  out.mutable_token_ids()->Add(completion.token_ids.begin(), completion.token_ids.end());
  out.mutable_logprobs()->Add(completion.logprobs.begin(), completion.logprobs.end());
  out.mutable_processed_logprobs()->Add(completion.processed_logprobs.begin(),
                                        completion.processed_logprobs.end());
  out.set_text(completion.text);
  out.set_finish_reason(completion.finish_reason);
  for (const auto& span : completion.version_spans) *out.add_version_spans() = span;
  return out;
}

Completion FromProto(const v1::Completion& completion) {
  Completion out;
  out.token_ids.assign(completion.token_ids().begin(), completion.token_ids().end());
  out.logprobs.assign(completion.logprobs().begin(), completion.logprobs().end());
  out.processed_logprobs.assign(completion.processed_logprobs().begin(),
                                completion.processed_logprobs().end());
  out.text = completion.text();
  out.finish_reason = completion.finish_reason();
  out.version_spans.assign(completion.version_spans().begin(), completion.version_spans().end());
  return out;
}

v1::FinishedGroup ToProto(const Prompt& prompt, const Group& group) {
  v1::FinishedGroup out;
  out.set_place(*prompt.place);
  out.set_row(prompt.row);
  for (const Completion& completion : group.completions) {
    *out.add_completions() = ToProto(completion);
  }
  if (group.baseline.has_value()) *out.mutable_baseline() = ToProto(*group.baseline);
  return out;
}

Group FromProto(const v1::FinishedGroup& group) {
  Group out;
  for (const v1::Completion& completion : group.completions()) {
    out.completions.push_back(FromProto(completion));
  }
  if (group.has_baseline()) out.baseline = FromProto(group.baseline());
  return out;
}

namespace {

// Of the weights that sampled what the state holds.
absl::Status CheckVersions(const v1::Generation& generation, const std::string& place) {
  RETURN_IF_ERROR(rpc::CheckReportedVersion(place, generation.policy_version()));
  const auto check = [&place](const v1::Completion& completion) -> absl::Status {
    for (const common::v1::VersionSpan& span : completion.version_spans()) {
      RETURN_IF_ERROR(rpc::CheckReportedVersion(place, span.policy_version()));
    }
    return absl::OkStatus();
  };
  for (const v1::FinishedGroup& group : generation.groups()) {
    for (const v1::Completion& completion : group.completions()) RETURN_IF_ERROR(check(completion));
    if (group.has_baseline()) {
      RETURN_IF_ERROR(check(group.baseline()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::DriverState> ParseDriverState(const std::string& bytes,
                                                 const std::string& place) {
  v1::DriverState state;
  if (bytes.empty() || !state.ParseFromString(bytes) || state.step() < 1) {
    return absl::DataLossError(
        absl::StrCat(place, " holds no state of a run to go on with; it was saved otherwise"));
  }
  RETURN_IF_ERROR(CheckVersions(state.ahead(), place));
  return state;
}

absl::Status CheckDriverState(const v1::DriverState& state, const std::string& command,
                              uint64_t seed, int64_t num_prompts) {
  if (state.command() != command) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the checkpoint is of tandem %s and this is tandem %s", state.command(), command));
  }
  if (state.seed() != seed) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "seed: the checkpoint's run had %d, found %d; with another one its place in the data is "
        "lost. Set seed=%d",
        state.seed(), seed, state.seed()));
  }
  if (state.num_prompts() != num_prompts) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the checkpoint's run had %d prompts and the data has %d, so its place in it is lost; give "
        "the same files, or begin anew from the exported checkpoint (tandem export)",
        state.num_prompts(), num_prompts));
  }
  return absl::OkStatus();
}

}  // namespace tandem::driver
