// All five processes, each in a network namespace with an address of its own: what was one host's
// loopback and shared memory goes over the network, and an address stays while its process changes.
#include "tests/integration/rolling_restart.h"

namespace tandem {
namespace {

TEST(RollingRestart, AcrossNetworkNamespacesLosesNoPrompt) {
  RestartInTurn({.mode = "sync", .own_networks = true},
                {"rollout-0", "rollout-1", "trainer-1", "trainer-0", "driver"});
}

}  // namespace
}  // namespace tandem
