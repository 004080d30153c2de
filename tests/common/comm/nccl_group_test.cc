// Ranks of an NCCL group on one GPU: each a process that is a host of its own to NCCL.
#include <ATen/ATen.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "common/comm/choose_group.h"
#include "common/comm/process_group.h"
#include "common/comm/wait_on_host.h"
#include "tests/common/comm/local_ranks.h"
#include "tests/support/cuda_device.h"
#include "tests/support/status_matchers.h"

extern char** environ;

namespace tandem::comm {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// comm_peer as rank 1.
class Peer {
 public:
  Peer(int port, const std::string& action, const std::string& backend) {
    setenv("NCCL_HOSTID", "peer", 1);
    std::vector<std::string> args = {COMM_PEER, std::to_string(port), "1", "2", action, backend};
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], nullptr, nullptr, argv.data(), environ), 0);
    setenv("NCCL_HOSTID", "test", 1);
  }
  ~Peer() {
    Signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  // Nothing if it was not started: all processes would get the signal.
  void Signal(int signal) const {
    if (pid_ > 0) kill(pid_, signal);
  }

 private:
  pid_t pid_ = -1;
};

class OneGpu : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { TANDEM_SKIP_WITHOUT_CUDA(); }

  static absl::StatusOr<std::unique_ptr<ProcessGroup>> Join(int port) {
    return CreateGroupOf(GetParam(), LocalOptions(port, 0, 2, absl::Seconds(60)));
  }
  static absl::Status BroadcastOnce(ProcessGroup& group, const at::Tensor& bytes) {
    ASSIGN_OR_RETURN(auto work, group.Broadcast(bytes, 0, "bytes"));
    return WaitOnHost(group, *work);
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, OneGpu, ::testing::Values("nccl", "cuda_ipc"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(OneGpu, AStoppedPeerRunsIntoTheDeadlineAndANewGroupWorks) {
  ASSERT_OK_AND_ASSIGN(auto store, StoreServer::Start());
  const at::Tensor bytes = at::zeros({1 << 20}, at::device(at::kCUDA).dtype(at::kByte));
  {
    Peer peer(store->port(), "broadcast", GetParam());
    ASSERT_OK_AND_ASSIGN(auto group, Join(store->port()));
    ASSERT_OK(BroadcastOnce(*group, bytes));
    group->SetTimeout(absl::Milliseconds(500));
    peer.Signal(SIGSTOP);
    absl::Status status;
    for (int i = 0; i < 1000 && status.ok(); ++i) status = BroadcastOnce(*group, bytes);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("'bytes'")));
    EXPECT_THAT(group->Broadcast(bytes, 0, "next").status(),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("create a new one")));
  }
  ASSERT_OK_AND_ASSIGN(auto again, StoreServer::Start());
  Peer peer(again->port(), "broadcast", GetParam());
  ASSERT_OK_AND_ASSIGN(auto group, Join(again->port()));
  EXPECT_OK(BroadcastOnce(*group, bytes));
}

TEST_P(OneGpu, AMessageToAKilledPeerFailsByTheDeadline) {
  ASSERT_OK_AND_ASSIGN(auto store, StoreServer::Start());
  Peer peer(store->port(), "idle", GetParam());
  ASSERT_OK_AND_ASSIGN(auto group, Join(store->port()));
  group->SetTimeout(absl::Seconds(5));
  peer.Signal(SIGKILL);
  const at::Tensor bytes = at::zeros({64 << 20}, at::device(at::kCUDA).dtype(at::kByte));
  auto work = group->Send(bytes, 1, "bucket 3");
  const absl::Status status = work.ok() ? WaitOnHost(*group, **work) : work.status();
  EXPECT_THAT(status.code(),
              AnyOf(absl::StatusCode::kUnavailable, absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(std::string(status.message()), HasSubstr("bucket 3"));
}

}  // namespace
}  // namespace tandem::comm
