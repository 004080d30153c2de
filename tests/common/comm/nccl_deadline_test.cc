// An NCCL group whose peer dies returns by its deadline, whatever blocks: over a fake of NCCL, so
// without a GPU. A wait that has no deadline shows as this test's timeout.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/comm/link_facts.h"
#include "common/comm/nccl_group.h"
#include "common/comm/nccl_rendezvous.h"
#include "common/comm/nccl_watchdog.h"
#include "common/comm/wait_on_host.h"
#include "tests/common/comm/local_ranks.h"
#include "tests/fakes/fake_nccl.h"
#include "tests/support/status_matchers.h"

namespace tandem::comm {
namespace {

using ::tandem::testing::FakeNccl;
using ::tandem::testing::FakeNcclWorld;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Milliseconds(400);
constexpr absl::Duration kAmple = absl::Seconds(60);  // for what has to happen soon

using Groups = std::vector<std::unique_ptr<ProcessGroup>>;

// Two processes, rank 0 and its peer, with any number of groups.
class NcclDeadline : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_OK_AND_ASSIGN(store_, StoreServer::Start()); }
  void TearDown() override {
    world_->Shutdown();
    rank_groups_.clear();
    peer_groups_.clear();
  }

  void MakeProcesses(FakeNccl::Options options) {
    rank_ = std::make_shared<FakeNccl>(world_, options);
    peer_ = std::make_shared<FakeNccl>(world_, options);
  }

  GroupOptions Options(int rank, int index, absl::Duration timeout) const {
    GroupOptions options = LocalOptions(store_->port(), rank, 2, timeout);
    options.name = absl::StrCat("group ", index);
    options.rendezvous.prefix = absl::StrCat("test/", index);
    options.family = absl::StrCat("process ", rank);
    return options;
  }

  // Both processes join `count` groups.
  void Join(int count) {
    const auto join = [&](int rank, std::shared_ptr<FakeNccl> api, Groups& groups) {
      for (int i = 0; i < count; ++i) {
        ASSERT_OK_AND_ASSIGN(auto group, CreateNcclGroupOver(Options(rank, i, kAmple), api));
        groups.push_back(std::move(group));
      }
    };
    std::thread peer([&] { join(1, peer_, peer_groups_); });
    join(0, rank_, rank_groups_);
    peer.join();
  }

  static absl::Status Reduce(ProcessGroup& group) {
    ASSIGN_OR_RETURN(auto work, group.AllReduce(at::zeros({4}), ReduceOp::kSum, "sum"));
    return WaitOnHost(group, *work);
  }

  // An operation on every group, on both processes.
  void ReduceOnAll() {
    std::thread peer([&] {
      for (auto& group : peer_groups_) EXPECT_OK(Reduce(*group));
    });
    for (auto& group : rank_groups_) EXPECT_OK(Reduce(*group));
    peer.join();
  }

  std::unique_ptr<StoreServer> store_;
  const std::shared_ptr<FakeNcclWorld> world_ = std::make_shared<FakeNcclWorld>(2);
  std::shared_ptr<FakeNccl> rank_, peer_;
  Groups rank_groups_, peer_groups_;
};

struct Style {
  const char* name;
  FakeNccl::Options options;
};

class NcclPeerDeath : public NcclDeadline,
                      public ::testing::WithParamInterface<std::tuple<int, Style>> {
 protected:
  int num_groups() const { return std::get<0>(GetParam()); }
  void SetUp() override {
    NcclDeadline::SetUp();
    MakeProcesses(std::get<1>(GetParam()).options);
  }
};
INSTANTIATE_TEST_SUITE_P(
    Matrix, NcclPeerDeath,
    ::testing::Combine(::testing::Range(1, 5),
                       ::testing::Values(Style{"NonBlocking", {}},
                                         Style{"BlockingInit", {.blocking_init = true}},
                                         Style{"BlockingConnect", {.blocking_connect = true}})),
    [](const auto& info) {
      return absl::StrCat(std::get<1>(info.param).name, std::get<0>(info.param));
    });

TEST_P(NcclPeerDeath, BeforeItJoinsTheLastGroup) {
  Join(num_groups() - 1);
  EXPECT_THAT(CreateNcclGroupOver(Options(0, num_groups(), kTimeout), rank_).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("rank 1 has not joined")));
}

TEST_P(NcclPeerDeath, WhileTheLastGroupInitialises) {
  Join(num_groups() - 1);
  const GroupOptions options = Options(0, num_groups(), kTimeout);
  ASSERT_OK_AND_ASSIGN(auto peer_store, StoreClient::Connect(options.rendezvous, kAmple));
  ASSERT_OK(peer_store->Set(NcclReportKey(options, "joined", 1), ""));
  EXPECT_THAT(CreateNcclGroupOver(options, rank_).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("no report from rank 1")));
}

TEST_P(NcclPeerDeath, BeforeTheFirstOperation) {
  Join(num_groups());
  ProcessGroup& last = *rank_groups_.back();
  last.SetTimeout(kTimeout);
  EXPECT_THAT(Reduce(last), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("'sum'")));
  EXPECT_TRUE(rank_->AwaitAborted(num_groups(), kAmple));
  for (auto& group : rank_groups_) EXPECT_FALSE(group->status().ok());
}

TEST_P(NcclPeerDeath, InAnOperation) {
  Join(num_groups());
  ReduceOnAll();
  for (auto& group : rank_groups_) group->SetTimeout(kTimeout);
  std::vector<std::unique_ptr<Work>> works;
  for (auto& group : rank_groups_) {
    auto work = group->AllReduce(at::zeros({4}), ReduceOp::kSum, "last");
    if (work.ok()) works.push_back(*std::move(work));
  }
  rank_->SynchronizeDevice();  // as a thread that reads a tensor's value: it asks no group
  EXPECT_TRUE(rank_->AwaitAborted(num_groups(), kAmple));
  for (auto& group : rank_groups_) {
    EXPECT_THAT(group->AllReduce(at::zeros({4}), ReduceOp::kSum, "next").status(),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("create a new one")));
  }
}

TEST_F(NcclDeadline, AnAbortReleasesAnIssuingThreadThatIsBlockedInNccl) {
  MakeProcesses({.blocking_connect = true});
  Join(1);
  absl::Notification issuing;
  absl::Status status;
  std::thread issuer([&] {
    issuing.Notify();
    status = Reduce(*rank_groups_[0]);
  });
  issuing.WaitForNotification();
  rank_groups_[0]->Abort("the run ends");
  issuer.join();
  EXPECT_THAT(std::string(status.message()), HasSubstr("the run ends"));
}

TEST_F(NcclDeadline, AnAsynchronousErrorBreaksTheGroupThatNobodyAsks) {
  MakeProcesses({});
  Join(2);
  ReduceOnAll();
  rank_->FailAsynchronously();
  EXPECT_TRUE(rank_->AwaitAborted(2, kAmple));
  EXPECT_THAT(std::string(rank_groups_[0]->status().message()), HasSubstr("NCCL: error 2"));
}

TEST_F(NcclDeadline, GroupsOfAnotherFamilyKeepRunning) {
  MakeProcesses({});
  Join(1);
  GroupOptions update = Options(0, 7, kAmple);
  update.family = "update";
  std::thread peer([&] {
    ASSERT_OK_AND_ASSIGN(auto group, CreateNcclGroupOver(Options(1, 7, kAmple), peer_));
    peer_groups_.push_back(std::move(group));
  });
  auto group = CreateNcclGroupOver(update, rank_);
  peer.join();
  ASSERT_OK(group.status());
  (*group)->Abort("the replica is lost");
  EXPECT_TRUE(rank_->AwaitAborted(1, kAmple));
  EXPECT_OK(rank_groups_[0]->status());
}

// A thread that frees a GPU's memory while the process ends brings it down.
TEST_F(NcclDeadline, AProcessThatExitsWaitsForAborts) {
  absl::Notification may_abort;
  MakeProcesses({.aborts_wait_for = &may_abort});
  Join(1);
  ASSERT_TRUE(NcclWatchdog::OfProcess().AwaitAborts(kAmple));
  rank_groups_[0]->Abort("the run ends");
  EXPECT_FALSE(NcclWatchdog::OfProcess().AwaitAborts(absl::Milliseconds(50)));
  may_abort.Notify();
  EXPECT_TRUE(NcclWatchdog::OfProcess().AwaitAborts(kAmple));
  EXPECT_TRUE(rank_->AwaitAborted(1, absl::ZeroDuration()));
}

TEST_F(NcclDeadline, AnIdleGroupIsClosedNotAborted) {
  MakeProcesses({});
  Join(1);
  ReduceOnAll();
  rank_groups_.clear();
  EXPECT_EQ(rank_->num_destroyed(), 1);
}

// Only what a replay runs has a deadline: the graph itself is never run here.
TEST_F(NcclDeadline, AReplayWithoutItsPeersBreaksTheGroup) {
  MakeProcesses({});
  Join(1);
  ReduceOnAll();
  ProcessGroup& group = *rank_groups_[0];
  auto* const replays = dynamic_cast<ReplaysInGraphs*>(&group);
  ASSERT_NE(replays, nullptr);
  group.SetTimeout(kTimeout);
  rank_->BeginCapture();
  ASSERT_OK_AND_ASSIGN(const auto captured,
                       group.AllReduce(at::zeros({4}), ReduceOp::kSum, "captured"));
  EXPECT_OK(captured->Wait());
  rank_->EndCapture();
  absl::SleepFor(2 * kTimeout);
  EXPECT_OK(group.status());

  const std::unique_ptr<device::Stream> stream =
      rank_->device().NewStream(device::Priority::kNormal);
  const auto turn = rank_->device().Use(*stream);
  rank_->Replay(*stream);
  ASSERT_OK(replays->WatchReplay("decode step"));
  EXPECT_TRUE(rank_->AwaitAborted(1, kAmple));
  EXPECT_THAT(group.status(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                       AllOf(HasSubstr("replay 'decode step'"),
                                             HasSubstr("not finished by its deadline"))));
}

TEST_F(NcclDeadline, AReplayWithItsPeersKeepsTheGroup) {
  MakeProcesses({});
  Join(1);
  ReduceOnAll();
  ProcessGroup& group = *rank_groups_[0];
  rank_->BeginCapture();
  ASSERT_OK(group.AllReduce(at::zeros({4}), ReduceOp::kSum, "captured").status());
  rank_->EndCapture();
  const std::unique_ptr<device::Stream> stream =
      rank_->device().NewStream(device::Priority::kNormal);
  const auto turn = rank_->device().Use(*stream);
  rank_->Replay(*stream);
  ASSERT_OK(dynamic_cast<ReplaysInGraphs&>(group).WatchReplay("decode step"));
  std::thread peer([&] { EXPECT_OK(Reduce(*peer_groups_[0])); });
  peer.join();
  EXPECT_OK(group.status());
  rank_groups_.clear();  // idle: closed, not aborted
  EXPECT_EQ(rank_->num_destroyed(), 1);
}

TEST_F(NcclDeadline, AllOperationsReturnOnceBothRanksHaveIssuedThem) {
  MakeProcesses({});
  Join(1);
  const auto run = [](ProcessGroup& group) {
    const at::Tensor full = at::zeros({8});
    const at::Tensor other = at::zeros({8});
    const at::Tensor half = at::zeros({4});
    const int peer = 1 - group.rank();
    ASSERT_OK_AND_ASSIGN(auto gathered, group.AllGather(full, half, "gather"));
    ASSERT_OK_AND_ASSIGN(auto scattered, group.ReduceScatter(half, full, "scatter"));
    ASSERT_OK_AND_ASSIGN(auto exchanged, group.AllToAll(other, full, "exchange"));
    ASSERT_OK_AND_ASSIGN(auto broadcast, group.Broadcast(full, 0, "broadcast"));
    ASSERT_OK_AND_ASSIGN(auto message, group.rank() == 0 ? group.Send(full, peer, "message")
                                                         : group.Receive(full, peer, "message"));
    for (Work* work :
         {gathered.get(), scattered.get(), exchanged.get(), broadcast.get(), message.get()}) {
      EXPECT_OK(WaitOnHost(group, *work));
    }
    EXPECT_OK(group.Barrier("end"));
    EXPECT_THAT(group.Send(full, group.rank(), "self").status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("to itself")));
  };
  std::thread peer([&] { run(*peer_groups_[0]); });
  run(*rank_groups_[0]);
  peer.join();
}

}  // namespace
}  // namespace tandem::comm
