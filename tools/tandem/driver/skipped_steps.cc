#include "tools/tandem/driver/skipped_steps.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::driver {

absl::Status SkippedSteps::OnStep(int64_t step, int64_t policy_version,
                                  const std::map<std::string, double>& metrics) {
  const auto value = [&metrics](const char* name) {
    const auto found = metrics.find(name);
    return found == metrics.end() ? 0.0 : found->second;
  };
  const double num_skipped = value("actor/skipped_updates") + value("critic/skipped_updates");
  // Before the first step the previous version is unknown.
  const bool stays = std::exchange(version_, policy_version) == policy_version;
  if (num_skipped == 0 || !stays) {
    in_a_row_ = 0;
    return absl::OkStatus();
  }
  ++in_a_row_;
  note_(absl::StrCat("step ", step, " trained nothing: ", num_skipped,
                     " updates were skipped because of non-finite gradients (actor/grad_norm ",
                     value("actor/grad_norm"), "); ", in_a_row_,
                     in_a_row_ == 1 ? " such step" : " such steps in a row",
                     "; the trainer's log names the first bad tensor"));
  if (limit_ == 0 || in_a_row_ < limit_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("steps ", step - in_a_row_ + 1, " to ", step,
                   " trained nothing because of non-finite gradients; the trainer's log names the "
                   "first bad tensor. Check the rewards, actor.optim.lr and the last checkpoint; "
                   "trainer.max_skipped_steps=0 continues regardless"));
}

}  // namespace tandem::driver
