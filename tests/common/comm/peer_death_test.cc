// A rank in another process is killed or stopped while this one waits for it.
#include <ATen/ATen.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <latch>
#include <string>
#include <vector>

#include "common/comm/process_group.h"
#include "tests/common/comm/local_ranks.h"
#include "tests/support/status_matchers.h"

extern char** environ;

namespace tandem::comm {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class PeerProcess {
 public:
  PeerProcess(const Backend& backend, int port, int rank, int size, std::string action) {
    std::vector<std::string> args = {
        COMM_PEER, std::to_string(port), std::to_string(rank), std::to_string(size),
        action,    backend.name};
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], nullptr, nullptr, argv.data(), environ), 0);
  }
  ~PeerProcess() {
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

class PeerDeath : public ::testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, PeerDeath, ::testing::Values(kGloo, kSharedMemory, kTls),
                         BackendName);

// What groups without collectives do as well.
class PeerDeathAmongMessages : public ::testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, PeerDeathAmongMessages,
                         ::testing::Values(kGloo, kSharedMemory, kSharedMessages, kSocket,
                                           kLocalSocket, kTls, kTlsSocket),
                         BackendName);

TEST_P(PeerDeath, APeerKilledDuringABroadcastIsUnavailableAtOnce) {
  ASSERT_OK_AND_ASSIGN(auto store, StoreServer::Start());
  PeerProcess peer(GetParam(), store->port(), 1, 2, "idle");
  ASSERT_OK_AND_ASSIGN(auto group, GetParam().create(LocalOptions(store->port(), 0, 2)));
  // More than the sockets hold: the broadcast waits for the idle peer.
  ASSERT_OK_AND_ASSIGN(auto work,
                       group->Broadcast(at::zeros({64 << 20}, at::kByte), 0, "bucket 3"));
  peer.Signal(SIGKILL);
  EXPECT_THAT(work->Wait(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("broadcast 'bucket 3'"), HasSubstr("67108864 bytes"))));
  EXPECT_THAT(group->status(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("bucket 3")));
}

TEST_P(PeerDeathAmongMessages, AReceiveFromAKilledPeerNamesIt) {
  ASSERT_OK_AND_ASSIGN(auto store, StoreServer::Start());
  PeerProcess peer(GetParam(), store->port(), 1, 2, "idle");
  ASSERT_OK_AND_ASSIGN(auto group, GetParam().create(LocalOptions(store->port(), 0, 2)));
  ASSERT_OK_AND_ASSIGN(auto work, group->Receive(at::zeros({8}, at::kByte), 1, "piece"));
  peer.Signal(SIGKILL);
  EXPECT_THAT(work->Wait(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("from rank 1")));
}

// A peer that fails in the middle of a message, of which `begin` is this rank's part.
void ExpectUnavailable(
    const Backend& backend, const std::string& action,
    const std::function<ProcessGroup::WorkOr(ProcessGroup&, const at::Tensor&)>& begin) {
  ASSERT_OK_AND_ASSIGN(auto store, StoreServer::Start());
  const PeerProcess peer(backend, store->port(), 1, 2, action);
  ASSERT_OK_AND_ASSIGN(auto group, backend.create(LocalOptions(store->port(), 0, 2)));
  ASSERT_OK_AND_ASSIGN(auto work, begin(*group, at::zeros({64 << 20}, at::kByte)));
  EXPECT_THAT(work->Wait(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("'bytes'")));
  EXPECT_THAT(group->status(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("'bytes'")));
}

TEST_P(PeerDeath, APeerThatFailsAmidABroadcastThatItTakesIsUnavailable) {
  ExpectUnavailable(GetParam(), "take_broadcast", [](ProcessGroup& group, const at::Tensor& bytes) {
    return group.Broadcast(bytes, 0, "bytes");
  });
}

TEST_P(PeerDeath, APeerThatFailsAmidItsBroadcastIsUnavailable) {
  ExpectUnavailable(GetParam(), "give_broadcast", [](ProcessGroup& group, const at::Tensor& bytes) {
    return group.Broadcast(bytes, 1, "bytes");
  });
}

TEST_P(PeerDeathAmongMessages, APeerThatFailsAmidAMessageThatItTakesIsUnavailable) {
  ExpectUnavailable(GetParam(), "take", [](ProcessGroup& group, const at::Tensor& bytes) {
    return group.Send(bytes, 1, "bytes");
  });
}

TEST_P(PeerDeathAmongMessages, APeerThatFailsAmidItsMessageIsUnavailable) {
  ExpectUnavailable(GetParam(), "give", [](ProcessGroup& group, const at::Tensor& bytes) {
    return group.Receive(bytes, 1, "bytes");
  });
}

TEST_P(PeerDeath, AStoppedPeerRunsIntoTheDeadline) {
  ASSERT_OK_AND_ASSIGN(auto store, StoreServer::Start());
  PeerProcess peer(GetParam(), store->port(), 1, 2, "broadcast");
  ASSERT_OK_AND_ASSIGN(auto group, GetParam().create(LocalOptions(store->port(), 0, 2)));
  at::Tensor bytes = at::zeros({1 << 20}, at::kByte);
  ASSERT_OK_AND_ASSIGN(auto first, group->Broadcast(bytes, 0, "bytes"));
  ASSERT_OK(first->Wait());
  group->SetTimeout(absl::Milliseconds(500));
  peer.Signal(SIGSTOP);
  absl::Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) {  // until the sockets are full
    ASSERT_OK_AND_ASSIGN(auto work, group->Broadcast(bytes, 0, "bytes"));
    status = work->Wait();
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                               AllOf(HasSubstr("broadcast 'bytes'"), HasSubstr("500ms"))));
}

TEST_P(PeerDeathAmongMessages, TheSurvivorsOfAGroupHearOfADeathThatIsNotTheirNeighbours) {
  ASSERT_OK_AND_ASSIGN(auto store, StoreServer::Start());
  PeerProcess peer(GetParam(), store->port(), 2, 3, "idle");
  std::vector<absl::Status> results(2);
  std::vector<std::thread> threads;
  std::latch connected(2);
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      auto group = GetParam().create(LocalOptions(store->port(), rank, 3));
      connected.count_down();
      if (!group.ok()) {
        results[rank] = group.status();
        return;
      }
      // Rank 1 waits for rank 0 only; rank 0 for the peer that dies.
      auto work = (*group)->Receive(at::zeros({8}, at::kByte), rank == 0 ? 2 : 0, "piece");
      connected.wait();
      if (rank == 0) peer.Signal(SIGKILL);
      results[rank] = work.ok() ? (*work)->Wait() : work.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kUnavailable, HasSubstr("from rank 2")));
  EXPECT_THAT(results[1], StatusIs(absl::StatusCode::kUnavailable, HasSubstr("from rank 0")));
}

}  // namespace
}  // namespace tandem::comm
