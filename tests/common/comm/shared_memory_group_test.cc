// What is the shared-memory group's own: values for many sizes and types, the order of sums,
// collectives that do not match, ranks that leave, and what remains of groups that are gone.
#include <ATen/ATen.h>
#include <dirent.h>

#include <fstream>
#include <string>

#include "tests/common/comm/local_ranks.h"
#include "tests/support/status_matchers.h"

namespace tandem::comm {
namespace {

using ::tandem::testing::IsOk;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;

absl::Status Expect(bool condition, const std::string& what) {
  return condition ? absl::OkStatus() : absl::InternalError(what);
}

// What rank `rank` brings to an operation: small whole numbers, which every type adds exactly.
at::Tensor Values(int rank, int64_t numel, at::ScalarType type) {
  return ((at::arange(numel, at::kLong) * 7 + rank * 3) % 11).to(type);
}

struct Shape {
  int size;
  int64_t numel;  // of one rank's slice
  at::ScalarType type;
};

class SharedMemoryValues : public ::testing::TestWithParam<Shape> {};

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  for (const int size : {1, 2, 3, 4}) {
    // Nothing, one element, an odd number, just a slot and a bit, and more than a ring of slots.
    for (const int64_t numel : {0, 1, 1021, 65537, 700001}) {
      shapes.push_back({size, numel, at::kFloat});
    }
    for (const at::ScalarType type : {at::kBFloat16, at::kDouble, at::kLong, at::kByte}) {
      shapes.push_back({size, 33333, type});
    }
  }
  return shapes;
}

INSTANTIATE_TEST_SUITE_P(Shapes, SharedMemoryValues, ::testing::ValuesIn(Shapes()),
                         [](const auto& info) {
                           return absl::StrCat(info.param.size, "Ranks", info.param.numel, "Of",
                                               c10::toString(info.param.type));
                         });

TEST_P(SharedMemoryValues, OfEveryCollectiveAreThoseOfTheDefinition) {
  const Shape shape = GetParam();
  const int64_t n = shape.numel;
  std::vector<at::Tensor> fulls;  // what each rank brings, [size * n]
  for (int rank = 0; rank < shape.size; ++rank) {
    fulls.push_back(Values(rank, shape.size * n, shape.type));
  }
  const auto results = RunRanks(shape.size, kSharedMemory, [&](ProcessGroup& group) {
    const int rank = group.rank();
    const auto run = [&]() -> absl::Status {
      // All are issued before any is waited for.
      at::Tensor gathered = at::zeros({shape.size * n}, fulls[0].options());
      at::Tensor shard = at::zeros({n}, fulls[0].options());
      at::Tensor exchanged = at::zeros({shape.size * n}, fulls[0].options());
      at::Tensor sum = fulls[rank].clone();
      at::Tensor largest = fulls[rank].clone();
      at::Tensor sent = fulls[rank].clone();
      ASSIGN_OR_RETURN(auto gather, group.AllGather(gathered, fulls[rank].narrow(0, 0, n), "a"));
      ASSIGN_OR_RETURN(auto scatter, group.ReduceScatter(shard, fulls[rank].clone(), "b"));
      ASSIGN_OR_RETURN(auto exchange, group.AllToAll(exchanged, fulls[rank], "c"));
      ASSIGN_OR_RETURN(auto reduce, group.AllReduce(sum, ReduceOp::kSum, "d"));
      ASSIGN_OR_RETURN(auto maximum, group.AllReduce(largest, ReduceOp::kMax, "e"));
      ASSIGN_OR_RETURN(auto broadcast, group.Broadcast(sent, shape.size - 1, "f"));
      for (Work* work : {broadcast.get(), gather.get(), scatter.get(), exchange.get(), reduce.get(),
                         maximum.get()}) {
        RETURN_IF_ERROR(work->Wait());
      }
      at::Tensor expected_sum = at::zeros({shape.size * n}, at::kDouble);
      at::Tensor expected_max = fulls[0];
      std::vector<at::Tensor> expected_gathered, expected_exchanged;
      for (int peer = 0; peer < shape.size; ++peer) {
        expected_sum += fulls[peer].to(at::kDouble);
        expected_max = at::maximum(expected_max, fulls[peer]);
        expected_gathered.push_back(fulls[peer].narrow(0, 0, n));
        expected_exchanged.push_back(fulls[peer].narrow(0, rank * n, n));
      }
      const at::Tensor exact = expected_sum.to(shape.type);
      RETURN_IF_ERROR(Expect(at::equal(gathered, at::cat(expected_gathered)), "all_gather"));
      RETURN_IF_ERROR(Expect(at::equal(shard, exact.narrow(0, rank * n, n)), "reduce_scatter"));
      RETURN_IF_ERROR(Expect(at::equal(exchanged, at::cat(expected_exchanged)), "all_to_all"));
      RETURN_IF_ERROR(Expect(at::equal(sum, exact), "all_reduce"));
      RETURN_IF_ERROR(Expect(at::equal(largest, expected_max), "maximum"));
      RETURN_IF_ERROR(Expect(at::equal(sent, fulls[shape.size - 1]), "broadcast"));
      return group.Barrier("end");
    };
    return run();
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST(SharedMemoryGroup, AddsInTheOrderOfTheRanksAndRoundsBFloat16Once) {
  // 2^24 + 1 + 1: one after the other the ones are lost, and in bfloat16 they must not be before.
  const std::vector<float> values = {16777216.f, 1.f, 1.f, -16777216.f};
  std::vector<at::Tensor> sums(4), halves(4);
  const auto results = RunRanks(4, kSharedMemory, [&](ProcessGroup& group) -> absl::Status {
    sums[group.rank()] = at::full({20000}, values[group.rank()], at::kFloat);
    halves[group.rank()] = at::full({5}, group.rank() == 0 ? 256.f : 0.5f, at::kBFloat16);
    ASSIGN_OR_RETURN(auto sum, group.AllReduce(sums[group.rank()], ReduceOp::kSum, "sum"));
    ASSIGN_OR_RETURN(auto half, group.AllReduce(halves[group.rank()], ReduceOp::kSum, "half"));
    RETURN_IF_ERROR(sum->Wait());
    return half->Wait();
  });
  ASSERT_THAT(results, Each(IsOk()));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(at::equal(sums[rank], at::zeros({20000}))) << rank;
    EXPECT_TRUE(at::equal(halves[rank], at::full({5}, 258.f, at::kBFloat16))) << rank;
  }
}

TEST(SharedMemoryGroup, LargeMessagesCrossWithoutADeadlock) {
  const auto results = RunRanks(3, kSharedMemory, [](ProcessGroup& group) -> absl::Status {
    std::vector<std::unique_ptr<Work>> works;
    std::vector<at::Tensor> arrived;
    const at::Tensor mine = at::full({3 << 20}, group.rank(), at::kByte);
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == group.rank()) continue;
      ASSIGN_OR_RETURN(auto send, group.Send(mine, peer, "piece"));
      arrived.push_back(at::zeros({3 << 20}, at::kByte));
      ASSIGN_OR_RETURN(auto receive, group.Receive(arrived.back(), peer, "piece"));
      works.push_back(std::move(send));
      works.push_back(std::move(receive));
    }
    // A collective beside the messages that nobody has waited for.
    at::Tensor count = at::ones({1}, at::kLong);
    ASSIGN_OR_RETURN(auto all, group.AllReduce(count, ReduceOp::kSum, "count"));
    RETURN_IF_ERROR(all->Wait());
    for (auto& work : works) RETURN_IF_ERROR(work->Wait());
    int next = 0;
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == group.rank()) continue;
      RETURN_IF_ERROR(
          Expect(at::equal(arrived[next++], at::full({3 << 20}, peer, at::kByte)), "wrong bytes"));
    }
    return Expect(count.item<int64_t>() == 3, "wrong count");
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST(SharedMemoryGroup, ACollectiveGoesOnWhileNobodyWaitsForIt) {
  const auto results = RunRanks(2, kSharedMemory, [](ProcessGroup& group) -> absl::Status {
    at::Tensor full = at::zeros({8 << 20}, at::kByte);
    ASSIGN_OR_RETURN(auto work,
                     group.AllGather(full, at::full({4 << 20}, 1 + group.rank(), at::kByte), "u"));
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (!work->IsCompleted() && absl::Now() < deadline) std::this_thread::yield();
    RETURN_IF_ERROR(Expect(work->IsCompleted(), "not finished"));
    RETURN_IF_ERROR(work->Wait());
    return Expect(full[0].item<int>() == 1 && full[-1].item<int>() == 2, "wrong values");
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST(SharedMemoryGroup, CollectivesThatDoNotMatchAreAnErrorThatNamesBoth) {
  const auto results = RunRanks(2, kSharedMemory, [](ProcessGroup& group) -> absl::Status {
    at::Tensor value = at::zeros({4}, at::kFloat);
    auto work = group.rank() == 0 ? group.AllReduce(value, ReduceOp::kSum, "layers.3")
                                  : group.AllReduce(value, ReduceOp::kSum, "layers.4");
    RETURN_IF_ERROR(work.status());
    return (*work)->Wait();
  });
  // One of them may hear it from the other.
  for (const absl::Status& status : results) {
    EXPECT_THAT(status.code(), AnyOf(absl::StatusCode::kInternal, absl::StatusCode::kUnavailable));
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("all_reduce 'layers.3' of 16 bytes of Float"),
                      HasSubstr("all_reduce 'layers.4' of 16 bytes of Float")));
  }
}

TEST(SharedMemoryGroup, AMessageOfAnotherSizeIsAnErrorThatNamesBoth) {
  const auto results = RunRanks(2, kSharedMemory, [](ProcessGroup& group) -> absl::Status {
    auto work = group.rank() == 0 ? group.Send(at::zeros({5}, at::kByte), 1, "five")
                                  : group.Receive(at::zeros({4}, at::kByte), 0, "four");
    RETURN_IF_ERROR(work.status());
    return (*work)->Wait();
  });
  EXPECT_THAT(results[1],
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr("'four' of 4 bytes"), HasSubstr("'five' of 5 bytes"))));
}

TEST(SharedMemoryGroup, ARankThatLeftIsNamedToThoseWhoNeedIt) {
  const auto results = RunRanks(3, kSharedMemory, [](ProcessGroup& group) -> absl::Status {
    if (group.rank() == 2) return absl::OkStatus();
    return group.Barrier("with all");
  });
  EXPECT_OK(results[2]);
  for (const int rank : {0, 1}) {
    EXPECT_THAT(results[rank],
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr("barrier 'with all'"), HasSubstr("rank 2"))));
  }
}

TEST(SharedMemoryGroup, WhatARankSentBeforeItLeftArrives) {
  const auto results = RunRanks(2, kSharedMemory, [](ProcessGroup& group) -> absl::Status {
    at::Tensor bytes = at::full({1000}, group.rank(), at::kByte);
    auto work = group.rank() == 1 ? group.Send(bytes, 0, "last") : group.Receive(bytes, 1, "last");
    RETURN_IF_ERROR(work.status());
    RETURN_IF_ERROR((*work)->Wait());
    return Expect(bytes[999].item<int>() == 1, "wrong bytes");
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST(SharedMemoryGroup, ADeadlineNamesTheRankThatHasNotEntered) {
  const auto results = RunRanks(3, kSharedMemory, [](ProcessGroup& group) -> absl::Status {
    RETURN_IF_ERROR(group.Barrier("begin"));
    group.SetTimeout(group.rank() == 0 ? absl::Milliseconds(200) : absl::Seconds(20));
    at::Tensor value = at::zeros({4}, at::kFloat);
    if (group.rank() == 2) {
      ASSIGN_OR_RETURN(auto never, group.Receive(value, 0, "never"));
      return never->Wait();
    }
    ASSIGN_OR_RETURN(auto work, group.AllReduce(value, ReduceOp::kSum, "norm"));
    return work->Wait();
  });
  EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kDeadlineExceeded,
                                   AllOf(HasSubstr("all_reduce 'norm'"), HasSubstr("200ms"),
                                         HasSubstr("rank 2 (which has not reached it"),
                                         HasSubstr("barrier 'begin'"))));
  EXPECT_THAT(results[1], StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 0")));
}

int NumFiles() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

int NumMappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("tandem-group") != std::string::npos) ++count;
  }
  return count;
}

TEST(SharedMemoryGroup, NothingRemainsOfGroupsThatAreGone) {
  const auto use = [](ProcessGroup& group) -> absl::Status {
    at::Tensor value = at::ones({10}, at::kFloat);
    ASSIGN_OR_RETURN(auto work, group.AllReduce(value, ReduceOp::kSum, "sum"));
    return work->Wait();
  };
  ASSERT_THAT(RunRanks(2, kSharedMemory, use), Each(IsOk()));
  const int files = NumFiles();
  for (int i = 0; i < 200; ++i) ASSERT_THAT(RunRanks(2, kSharedMemory, use), Each(IsOk()));
  EXPECT_EQ(NumMappings(), 0);
  EXPECT_LE(NumFiles(), files + 4);  // sockets of stores may be a moment late
}

TEST(ChooseGroup, RanksOfOneHostShareMemoryUnlessOneDoesNotAllowIt) {
  for (const bool allowed : {true, false}) {
    auto store = *StoreServer::Start();
    std::vector<absl::Status> results(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        const auto run = [&]() -> absl::Status {
          ASSIGN_OR_RETURN(auto group, CreateProcessGroup(LocalOptions(store->port(), rank, 2),
                                                          at::kCPU, rank == 0 || allowed));
          RETURN_IF_ERROR(group->Barrier("meet"));
          RETURN_IF_ERROR(Expect((NumMappings() > 0) == allowed, "the other group"));
          return group->Barrier("end");
        };
        results[rank] = run();
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(results, Each(IsOk())) << allowed;
  }
}

}  // namespace
}  // namespace tandem::comm
