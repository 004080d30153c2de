#include "tools/tandem/driver/driver_state.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
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
  for (const EpisodeSegment& segment : completion.segments) {
    v1::EpisodeSegment& added = *out.add_segments();
    added.set_kind(segment.kind);
    added.set_num_tokens(segment.num_tokens);
    added.set_reward(segment.reward);
    for (size_t i = 0; i < segment.images.size(); ++i) {
      v1::SegmentImage& kept = *added.add_images();
      kept.set_digest(segment.images[i].digest);
      kept.set_path(segment.images[i].source);
      if (i >= segment.image_places.size()) continue;
      kept.set_text_begin(segment.image_places[i].begin);
      kept.set_text_end(segment.image_places[i].end);
    }
  }
  out.set_num_turns(completion.facts.num_turns);
  out.set_num_tool_calls(completion.facts.num_tool_calls);
  out.set_num_malformed_tool_calls(completion.facts.num_malformed_calls);
  out.set_routed_experts(completion.routed_experts);
  out.set_prompt_routed_experts(completion.prompt_routed_experts);
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
  for (const v1::EpisodeSegment& segment : completion.segments()) {
    EpisodeSegment& added = out.segments.emplace_back(
        EpisodeSegment{segment.kind(), segment.num_tokens(), segment.reward()});
    for (const v1::SegmentImage& image : segment.images()) {
      added.images.push_back({image.path(), image.digest()});
      if (image.has_text_begin()) {
        added.image_places.push_back({image.text_begin(), image.text_end()});
      }
    }
  }
  out.facts.num_turns = completion.num_turns();
  out.facts.num_tool_calls = completion.num_tool_calls();
  out.facts.num_malformed_calls = completion.num_malformed_tool_calls();
  out.routed_experts = completion.routed_experts();
  out.prompt_routed_experts = completion.prompt_routed_experts();
  return out;
}

v1::FinishedGroup ToProto(int64_t place, const Group& group) {
  v1::FinishedGroup out;
  out.set_place(place);
  out.set_row(group.prompt.row);
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

// Checks the versions of the weights that sampled the state's groups.
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
        absl::StrCat(place, " holds no driver state to resume from; a script saved it, not a run"));
  }
  RETURN_IF_ERROR(CheckVersions(state.ahead(), place));
  return state;
}

namespace {

absl::Status CheckInputs(const RunIdentity& run, v1::DriverState& state,
                         std::vector<std::string>& notes) {
  if (state.inputs().empty()) {
    notes.push_back(
        "the checkpoint has no digests of its inputs: cannot check that the model's configuration, "
        "the tokenizer and the data are unchanged");
    return absl::OkStatus();
  }
  const InputChanges changes =
      CompareInputs({state.inputs().begin(), state.inputs().end()}, run.inputs);
  if (changes.kinds.empty()) return absl::OkStatus();
  const std::string lines = absl::StrJoin(changes.lines, "\n  ");
  for (const std::string& kind : changes.kinds) {
    if (run.allow_changed.count(kind) > 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the run's inputs differ from the checkpoint's:\n  ", lines,
                     "\nUse the same inputs, or allow the change: --resume --allow-changed=",
                     absl::StrJoin(changes.kinds, ",")));
  }
  notes.push_back(
      absl::StrCat("resuming with changed inputs, as --allow-changed permits:\n  ", lines));
  if (state.has_ahead()) {
    for (const char* kind : {kDataInput, kTokenizerInput, kChatTemplateInput, kTeacherInput}) {
      if (changes.kinds.count(kind) == 0) continue;
      notes.push_back("dropping the checkpoint's samples for the next step");
      state.clear_ahead();
      break;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckDriverState(const RunIdentity& run, v1::DriverState& state,
                              std::vector<std::string>& notes) {
  if (state.command() != run.command) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "expected a checkpoint of tandem %s, found one of tandem %s; resume it with tandem %s",
        run.command, state.command(), state.command()));
  }
  if (state.seed() != run.seed) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "seed: expected %d, as in the checkpoint, found %d: another seed orders the data "
        "differently. Set seed=%d",
        state.seed(), run.seed, state.seed()));
  }
  RETURN_IF_ERROR(CheckInputs(run, state, notes));
  if (state.num_prompts() != run.num_prompts && run.allow_changed.count(kDataInput) == 0) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "expected %d prompts, as in the checkpoint, but the data has %d, so the position in the "
        "data is lost; use the same files and data.max_prompt_length, allow other data "
        "(--allow-changed=data), or start a new run from the exported checkpoint (tandem export)",
        state.num_prompts(), run.num_prompts));
  }
  return absl::OkStatus();
}

}  // namespace tandem::driver
