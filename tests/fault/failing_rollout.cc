// failing_rollout ACTION TENSOR: serves WeightService for TestModel::Small() and prints its
// address. In the first update it kills ("kill") or stops ("stop") itself when the bytes of tensor
// number TENSOR arrive; "kill_read" and "stop_read" do so when another replica reads them; "live"
// does nothing of it. Ends with its parent.
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/fakes/fake_rollout.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string action = argv[1];
  const int tensor = std::atoi(argv[2]);
  tandem::testing::FakeRollout rollout(tandem::testing::TestModel::Small());
  if (!rollout.status.ok()) return 1;
  int seen = 0;  // once when the receiver checks sizes, then when bytes arrive
  rollout.store.on_staged = [&](int index) {
    if (index != tensor || ++seen != 2) return;
    if (action == "kill") raise(SIGKILL);
    if (action == "stop") raise(SIGSTOP);
  };
  rollout.store.on_live = [&](int index) {
    if (index != tensor) return;
    if (action == "kill_read") raise(SIGKILL);
    if (action == "stop_read") raise(SIGSTOP);
  };
  std::printf("%s\n", rollout.address().c_str());
  std::fflush(stdout);
  while (true) pause();
}
