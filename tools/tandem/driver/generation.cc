#include "tools/tandem/driver/generation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/driver_state.h"

namespace tandem::driver {
namespace {

v1::FinishedGroup ToProto(const Prompt& prompt, const std::vector<Completion>& completions) {
  v1::FinishedGroup out;
  out.set_place(*prompt.place);
  out.set_row(prompt.row);
  for (const Completion& completion : completions) *out.add_completions() = ToProto(completion);
  return out;
}

bool Aborted(const std::vector<Completion>& completions) {
  return std::any_of(completions.begin(), completions.end(), [](const Completion& completion) {
    return completion.finish_reason == common::v1::FINISH_REASON_ABORTED;
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Generation>> Generation::Start(RolloutFleet& fleet,
                                                              GenerationOptions options) {
  std::unique_ptr<Generation> out(new Generation());
  out->step_ = options.step;
  out->prompt_position_ = options.prompt_position;
  out->num_prompts_ = static_cast<int64_t>(options.prompts.size());
  std::vector<Group> groups(options.prompts.size());
  std::vector<Prompt> missing;
  for (size_t i = 0; i < options.prompts.size(); ++i) {
    groups[i].prompt = std::move(options.prompts[i]);
    groups[i].prompt.place = static_cast<int64_t>(i);
  }
  if (options.restored != nullptr) {
    for (const v1::FinishedGroup& group : options.restored->groups()) {
      if (group.place() < 0 || group.place() >= out->num_prompts_ ||
          groups[group.place()].prompt.row != group.row()) {
        return absl::FailedPreconditionError(absl::StrFormat(
            "the checkpoint has samples of row %d as prompt %d of step %d, and the data has "
            "another row there; the files, their order, and data.train_batch_size must be the same",
            group.row(), group.place(), options.step));
      }
      for (const v1::Completion& completion : group.completions()) {
        groups[group.place()].completions.push_back(FromProto(completion));
      }
      absl::MutexLock lock(&out->mu_);
      out->finished_[group.place()] = group;
    }
  }
  for (const Group& group : groups) {
    if (group.completions.empty()) missing.push_back(group.prompt);
  }
  if (options.restored != nullptr) {
    out->num_regenerated_ = static_cast<int64_t>(missing.size());
  }
  auto generate =
      [self = out.get(), &fleet, groups = std::move(groups), missing = std::move(missing),
       params = options.params,
       on_tokens = std::move(options.on_tokens)]() mutable -> absl::StatusOr<std::vector<Group>> {
    const std::vector<Prompt> asked = missing;
    ASSIGN_OR_RETURN(
        std::vector<Group> sampled,
        fleet.Generate(std::move(missing), params, /*return_text=*/true, on_tokens,
                       [self, &asked](size_t index, const std::vector<Completion>& completions) {
                         if (Aborted(completions)) return;
                         absl::MutexLock lock(&self->mu_);
                         self->finished_[*asked[index].place] = ToProto(asked[index], completions);
                       }));
    for (Group& group : sampled) {
      groups[static_cast<size_t>(*group.prompt.place)].completions = std::move(group.completions);
    }
    return std::move(groups);
  };
  out->groups_ = std::async(std::launch::async, std::move(generate));
  return out;
}

Generation::~Generation() {
  if (groups_.valid()) groups_.wait();
}

v1::Generation Generation::Finished() const {
  v1::Generation out;
  out.set_step(step_);
  out.set_num_prompts(num_prompts_);
  absl::MutexLock lock(&mu_);
  for (const auto& [place, group] : finished_) *out.add_groups() = group;
  return out;
}

}  // namespace tandem::driver
