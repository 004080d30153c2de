#include "common/comm/process_group.h"

#include <ATen/ATen.h>

#include <latch>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>

#include "absl/synchronization/notification.h"
#include "tests/common/comm/local_ranks.h"
#include "tests/support/status_matchers.h"

namespace tandem::comm {
namespace {

using ::tandem::testing::IsOk;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

class GroupTest : public ::testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, GroupTest, ::testing::Values(kGloo, kSharedMemory, kTls),
                         BackendName);

// What groups without collectives do as well.
class MessagesTest : public ::testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, MessagesTest,
                         ::testing::Values(kGloo, kSharedMemory, kSharedMessages, kSocket,
                                           kLocalSocket, kTls, kTlsSocket),
                         BackendName);

absl::Status Expect(bool condition, const std::string& what) {
  return condition ? absl::OkStatus() : absl::InternalError(what);
}

TEST_P(GroupTest, AllGatherPutsShardsInRankOrderAndTakesAShardInPlace) {
  const auto results = RunRanks(3, GetParam(), [](ProcessGroup& group) -> absl::Status {
    at::Tensor full = at::zeros({6}, at::kFloat);
    at::Tensor shard = full.narrow(0, group.rank() * 2, 2);
    shard.fill_(group.rank() + 1);
    ASSIGN_OR_RETURN(auto work, group.AllGather(full, shard, "unit"));
    RETURN_IF_ERROR(work->Wait());
    return Expect(at::equal(full, at::tensor({1.f, 1.f, 2.f, 2.f, 3.f, 3.f})), "wrong values");
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST_P(GroupTest, ReduceScatterSumsEachRanksSlice) {
  const auto results = RunRanks(3, GetParam(), [](ProcessGroup& group) -> absl::Status {
    at::Tensor full = at::arange(6, at::kFloat) + group.rank();
    at::Tensor shard = at::empty({2}, at::kFloat);
    ASSIGN_OR_RETURN(auto work, group.ReduceScatter(shard, full, "unit"));
    RETURN_IF_ERROR(work->Wait());
    const float first = 3.f * 2 * group.rank() + 3;
    return Expect(at::equal(shard, at::tensor({first, first + 3})), "wrong values");
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST_P(GroupTest, AllToAllGivesEachRankItsSliceOfEveryRank) {
  const auto results = RunRanks(3, GetParam(), [](ProcessGroup& group) -> absl::Status {
    const at::Tensor in = (at::arange(6, at::kFloat) + 10 * group.rank()).to(at::kBFloat16);
    at::Tensor out = at::zeros({6}, at::kBFloat16);
    ASSIGN_OR_RETURN(auto work, group.AllToAll(out, in, "unit"));
    RETURN_IF_ERROR(work->Wait());
    const float first = 2.f * group.rank();
    const at::Tensor expected =
        at::tensor({first, first + 1, first + 10, first + 11, first + 20, first + 21});
    return Expect(at::equal(out.to(at::kFloat), expected), "wrong values");
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST_P(GroupTest, ReducesBroadcastsAndMeetsAtBarriers) {
  const auto results = RunRanks(3, GetParam(), [](ProcessGroup& group) -> absl::Status {
    at::Tensor value = at::full({2}, group.rank() + 1, at::kDouble);
    ASSIGN_OR_RETURN(auto sum, group.AllReduce(value, ReduceOp::kSum, "sum"));
    RETURN_IF_ERROR(sum->Wait());
    RETURN_IF_ERROR(Expect(value[0].item<double>() == 6, "sum"));
    value.fill_(group.rank());
    ASSIGN_OR_RETURN(auto max, group.AllReduce(value, ReduceOp::kMax, "max"));
    RETURN_IF_ERROR(max->Wait());
    RETURN_IF_ERROR(Expect(value[1].item<double>() == 2, "max"));
    value.fill_(group.rank());
    ASSIGN_OR_RETURN(auto broadcast, group.Broadcast(value, 1, "from one"));
    RETURN_IF_ERROR(broadcast->Wait());
    RETURN_IF_ERROR(Expect(value[0].item<double>() == 1, "broadcast"));
    return group.Barrier("end");
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST_P(MessagesTest, MessagesBetweenAPairArriveInOrder) {
  const auto results = RunRanks(2, GetParam(), [](ProcessGroup& group) -> absl::Status {
    std::vector<at::Tensor> tensors;
    std::vector<std::unique_ptr<Work>> works;
    for (int i = 0; i < 8; ++i) {
      tensors.push_back(at::full({1000 + i}, group.rank() == 0 ? i : -1, at::kInt));
      auto work = group.rank() == 0 ? group.Send(tensors[i], 1, "message")
                                    : group.Receive(tensors[i], 0, "message");
      RETURN_IF_ERROR(work.status());
      works.push_back(*std::move(work));
    }
    for (int i = 0; i < 8; ++i) {
      RETURN_IF_ERROR(works[i]->Wait());
      RETURN_IF_ERROR(Expect(tensors[i][999].item<int>() == i, "out of order"));
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST_P(MessagesTest, AWaitThatOutlastsTheTimeoutNamesTheOperationAndBreaksTheGroup) {
  const auto results = RunRanks(2, GetParam(), [](ProcessGroup& group) -> absl::Status {
    at::Tensor bytes = at::zeros({64}, at::kByte);
    group.SetTimeout(group.rank() == 0 ? absl::Milliseconds(200) : absl::Seconds(20));
    ASSIGN_OR_RETURN(auto work, group.Receive(bytes, 1 - group.rank(), "bucket 7"));
    const absl::Status status = work->Wait();
    // The other rank hears of it by the closed connection, long before its own deadline.
    RETURN_IF_ERROR(Expect(group.Send(bytes, 1 - group.rank(), "next").status().code() ==
                               absl::StatusCode::kFailedPrecondition,
                           "the group still works"));
    return status;
  });
  EXPECT_THAT(results[0],
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("group test, rank 0 of 2"), HasSubstr("receive 'bucket 7'"),
                             HasSubstr("64 bytes"), HasSubstr("from rank 1"))));
  EXPECT_THAT(results[1], StatusIs(absl::StatusCode::kUnavailable, HasSubstr("bucket 7")));
}

TEST_P(GroupTest, AbortFromAnotherThreadEndsWaitsHereAndOnPeers) {
  std::latch waiting(2);
  const auto results = RunRanks(3, GetParam(), [&](ProcessGroup& group) -> absl::Status {
    at::Tensor bytes = at::zeros({1 << 16}, at::kByte);
    if (group.rank() == 2) {
      waiting.wait();
      std::thread aborter([&group] { group.Abort("the test says so"); });
      aborter.join();
      group.Abort("again");
      auto work = group.Broadcast(bytes, 0, "late");
      return work.status();
    }
    auto work = group.AllReduce(bytes, ReduceOp::kSum, "all");
    waiting.count_down();
    RETURN_IF_ERROR(work.status());
    return (*work)->Wait();
  });
  EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kUnavailable, HasSubstr("all_reduce 'all'")));
  EXPECT_THAT(results[1], StatusIs(absl::StatusCode::kUnavailable, HasSubstr("all_reduce 'all'")));
  EXPECT_THAT(results[2],
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("the test says so")));
}

TEST_P(MessagesTest, AbortEndsALocalWait) {
  const auto results = RunRanks(2, GetParam(), [](ProcessGroup& group) -> absl::Status {
    at::Tensor bytes = at::zeros({16}, at::kByte);
    if (group.rank() == 1) {
      ASSIGN_OR_RETURN(auto work, group.Receive(bytes, 0, "never"));
      return work->Wait();
    }
    ASSIGN_OR_RETURN(auto work, group.Receive(bytes, 1, "never"));
    std::thread aborter([&group] { group.Abort("stop"); });
    const absl::Status status = work->Wait();
    aborter.join();
    return status;
  });
  EXPECT_THAT(results[0],
              StatusIs(absl::StatusCode::kAborted, AllOf(HasSubstr("never"), HasSubstr("stop"))));
  EXPECT_THAT(results[1], StatusIs(absl::StatusCode::kUnavailable, HasSubstr("never")));
}

TEST_P(MessagesTest, RendezvousWithoutTheOthersEndsAtTheDeadline) {
  ASSERT_OK_AND_ASSIGN(auto store, StoreServer::Start());
  EXPECT_THAT(GetParam().create(LocalOptions(store->port(), 0, 2, absl::Milliseconds(300))),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("group test, rank 0 of 2"), HasSubstr("rendezvous"))));
}

TEST_P(MessagesTest, RendezvousCanBeCancelled) {
  ASSERT_OK_AND_ASSIGN(auto store, StoreServer::Start());
  absl::Notification cancel;
  GroupOptions options = LocalOptions(store->port(), 0, 2);
  options.cancel = &cancel;
  std::thread canceller([&cancel] { cancel.Notify(); });
  EXPECT_THAT(GetParam().create(options),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("rendezvous")));
  canceller.join();
}

TEST_P(GroupTest, SizesThatDoNotFitAreRefusedBeforeAnythingIsSent) {
  const auto results = RunRanks(2, GetParam(), [](ProcessGroup& group) -> absl::Status {
    const absl::Status status = group.AllGather(at::zeros({5}), at::zeros({2}), "unit").status();
    RETURN_IF_ERROR(Expect(status.code() == absl::StatusCode::kInvalidArgument, "accepted"));
    RETURN_IF_ERROR(Expect(!group.Send(at::zeros({5}), group.rank(), "x").ok(), "sent to itself"));
    return group.Barrier("end");
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST_P(GroupTest, OfOneRankNeedsNoStore) {
  ASSERT_OK_AND_ASSIGN(auto group, GetParam().create(LocalOptions(0, 0, 1)));
  at::Tensor full = at::zeros({2});
  at::Tensor shard = at::ones({2});
  ASSERT_OK_AND_ASSIGN(auto work, group->AllGather(full, shard, "unit"));
  EXPECT_OK(work->Wait());
  EXPECT_TRUE(at::equal(full, shard));
  EXPECT_OK(group->Barrier("end"));
  EXPECT_THAT(group->Send(full, 0, "x"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no rank 0")));
  group->Abort("done");
  EXPECT_THAT(group->AllReduce(full, ReduceOp::kSum, "x"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("done")));
}

// c10d's recorder ends the process now and then where two groups begin at once.
TEST(GlooGroup, IsNotRecorded) {
  const auto results = RunRanks(2, kGloo, [](ProcessGroup& group) { return group.Barrier("end"); });
  EXPECT_THAT(results, Each(IsOk()));
  const std::string recorded =
      c10d::dump_fr_trace_json(/*includeCollectives=*/true, /*onlyActive=*/false);
  EXPECT_THAT(recorded, Not(HasSubstr("\"entries\""))) << "expected no operation, found some";
  EXPECT_THAT(recorded, HasSubstr("\"version\"")) << "expected c10d's record";
}

TEST_P(MessagesTest, ARankOutOfRangeIsRefused) {
  EXPECT_THAT(GetParam().create(LocalOptions(1, 2, 2)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rank 2 of 2")));
}

}  // namespace
}  // namespace tandem::comm
