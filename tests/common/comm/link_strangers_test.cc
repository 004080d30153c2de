// Strangers at the listener of a rank in a process of its own that may open few descriptors: while
// the group forms they keep nobody out and end nothing, and once it stands there is no listener.
#include <ATen/ATen.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "common/comm/process_group.h"
#include "common/host/file_descriptor.h"
#include "tests/common/comm/local_ranks.h"
#include "tests/support/hostile_clients.h"
#include "tests/support/listening_ports.h"
#include "tests/support/status_matchers.h"

extern char** environ;

namespace tandem::comm {
namespace {

using ::tandem::testing::ConnectTo;
using ::tandem::testing::IdleClients;
using ::tandem::testing::ListeningPorts;

constexpr char kFewDescriptors[] = "100";

// A rank that may open few descriptors.
class PoorPeer {
 public:
  PoorPeer(const Backend& backend, int port, const std::string& action) {
    std::vector<std::string> args = {"/bin/sh",
                                     "-c",
                                     "ulimit -n \"$0\" && exec \"$@\"",
                                     kFewDescriptors,
                                     COMM_PEER,
                                     std::to_string(port),
                                     "0",
                                     "2",
                                     action,
                                     backend.name};
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], nullptr, nullptr, argv.data(), environ), 0);
  }
  ~PoorPeer() {
    if (pid_ <= 0) return;  // all processes would get the signal
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  // Returns the ports once there are `any`, or none.
  std::set<int> AwaitPorts(bool any) const {
    const absl::Time until = absl::Now() + absl::Seconds(30);
    std::set<int> ports = ListeningPorts(pid_);
    while (ports.empty() == any && absl::Now() < until) {
      absl::SleepFor(absl::Milliseconds(5));
      ports = ListeningPorts(pid_);
    }
    return ports;
  }
  bool IsAlive() const { return waitpid(pid_, nullptr, WNOHANG) == 0; }

 private:
  pid_t pid_ = -1;
};

class LinkStrangers : public ::testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, LinkStrangers, ::testing::Values(kGloo, kSocket), BackendName);

TEST_P(LinkStrangers, MoreIdleOnesThanDescriptorsKeepNobodyOutOfAGroupThatForms) {
  ASSERT_OK_AND_ASSIGN(auto store, StoreServer::Start());
  const PoorPeer peer(GetParam(), store->port(), "idle");
  std::vector<std::unique_ptr<IdleClients>> idle;
  for (const int port : peer.AwaitPorts(/*any=*/true)) {
    idle.push_back(std::make_unique<IdleClients>(port, 400));
    EXPECT_EQ(idle.back()->num_open(), 400);
  }
  EXPECT_FALSE(idle.empty());
  const auto group = GetParam().create(LocalOptions(store->port(), 1, 2));
  EXPECT_OK(group.status());
  EXPECT_TRUE(peer.IsAlive());
}

TEST_P(LinkStrangers, NoListenerIsLeftOnceTheGroupStands) {
  ASSERT_OK_AND_ASSIGN(auto store, StoreServer::Start());
  const PoorPeer peer(GetParam(), store->port(), "idle");
  ASSERT_OK_AND_ASSIGN(const auto group, GetParam().create(LocalOptions(store->port(), 1, 2)));
  EXPECT_EQ(peer.AwaitPorts(/*any=*/false), std::set<int>());
  EXPECT_TRUE(peer.IsAlive());
  EXPECT_OK(group->status());
}

// Gloo by itself knows a peer by a small number.
TEST(GlooStrangers, TakeNobodysSeat) {
  ASSERT_OK_AND_ASSIGN(auto store, StoreServer::Start());
  const PoorPeer peer(kGloo, store->port(), "broadcast");
  std::vector<host::FileDescriptor> liars;
  for (const int port : peer.AwaitPorts(/*any=*/true)) {
    for (int64_t seat = 0; seat < 4; ++seat) {
      liars.push_back(ConnectTo(port));
      const std::string bytes =
          std::string(reinterpret_cast<const char*>(&seat), sizeof(seat)) + std::string(96, '\xff');
      EXPECT_EQ(send(liars.back().get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(bytes.size()));
    }
  }
  ASSERT_OK_AND_ASSIGN(const auto group, CreateGlooGroup(LocalOptions(store->port(), 1, 2)));
  at::Tensor bytes = at::ones({1 << 20}, at::kByte);
  ASSERT_OK_AND_ASSIGN(const auto work, group->Broadcast(bytes, 0, "bytes"));
  EXPECT_OK(work->Wait());
  EXPECT_TRUE(at::equal(bytes, at::zeros({1 << 20}, at::kByte)));
}

}  // namespace
}  // namespace tandem::comm
