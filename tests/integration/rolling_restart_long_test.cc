// All five processes, in both ways that a step follows another, and in both in which a run takes
// the end of a rollout.
#include "tests/integration/rolling_restart.h"

namespace tandem {
namespace {

const std::vector<std::string> kAll = {"rollout-0", "rollout-1", "trainer-1", "trainer-0",
                                       "driver"};

TEST(RollingRestart, OfASyncRunLosesNoPrompt) { RestartInTurn({.mode = "sync"}, kAll); }

TEST(RollingRestart, OfAOneStepOffRunLosesNoPrompt) {
  RestartInTurn({.mode = "one_step_off"}, kAll);
}

TEST(RollingRestart, OfARunThatEndsWithARolloutLosesNoPrompt) {
  RestartInTurn({.mode = "sync", .update_policy = "all"}, kAll);
}

}  // namespace
}  // namespace tandem
