#include "tests/integration/rolling_restart.h"

namespace tandem {
namespace {

TEST(RollingRestart, ARolloutTheTrainerAndTheDriverComeBackAndNoPromptIsLost) {
  RestartInTurn({.total_steps = 24}, {"rollout-0", "trainer-0", "driver"});
}

}  // namespace
}  // namespace tandem
