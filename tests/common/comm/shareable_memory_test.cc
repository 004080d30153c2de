// Memory that peers of one host read where it lies: what is found in it, what a peer maps of it,
// messages from it, and what is refused.
#include "common/comm/shareable_memory.h"

#include <ATen/ATen.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/comm/local_links.h"
#include "common/comm/peer_memory.h"
#include "common/comm/store_connection.h"
#include "common/status/status_macros.h"
#include "tests/common/comm/local_ranks.h"
#include "tests/support/status_matchers.h"

namespace tandem::comm {
namespace {

using ::tandem::testing::IsOk;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kBytes = 3 * kLeastShareableBytes;

absl::Status Expect(bool condition, const std::string& what) {
  return condition ? absl::OkStatus() : absl::InternalError(what);
}

at::Tensor Pattern(int64_t numel, int64_t seed) {
  return ((at::arange(numel, at::kLong) * 7 + seed) % 251).to(at::kByte);
}

at::Tensor ShareablePattern(int64_t numel, int64_t seed) {
  return ShareableZeros(numel, at::kByte).copy_(Pattern(numel, seed));
}

TEST(ShareableMemory, IsZerosAndFoundByAddress) {
  const at::Tensor tensor = ShareableZeros(kBytes / 4, at::kFloat);
  EXPECT_TRUE(at::equal(tensor, at::zeros({kBytes / 4})));
  const auto* const data = static_cast<const std::byte*>(tensor.const_data_ptr());
  const auto all = FindShareable(data, kBytes);
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->offset, 0);
  EXPECT_EQ(all->segment->size_bytes(), kBytes);
  const auto end = FindShareable(data + kBytes - 5, 5);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->offset, kBytes - 5);
  EXPECT_EQ(end->segment->id(), all->segment->id());
  EXPECT_FALSE(FindShareable(data + kBytes - 5, 6).has_value());
  EXPECT_FALSE(FindShareable(data - 1, 2).has_value());
}

TEST(ShareableMemory, IsForgottenWithItsTensor) {
  at::Tensor tensor = ShareableZeros(kBytes, at::kByte);
  const void* const data = tensor.const_data_ptr();
  at::Tensor part = tensor.narrow(0, 5, 10);
  tensor.reset();
  EXPECT_TRUE(FindShareable(data, kBytes).has_value()) << "a view still holds it";
  part.reset();
  EXPECT_FALSE(FindShareable(data, kBytes).has_value());
}

// Those blocks of which the kernel says that a large page is mapped, in bytes.
int64_t LargePagesAt(const void* data) {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool here = false;
  while (std::getline(maps, line)) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      const auto at = reinterpret_cast<uintptr_t>(data);
      here = begin <= at && at < end;
    }
    int64_t kilobytes = 0;
    if (here && std::sscanf(line.c_str(), "ShmemPmdMapped: %ld kB", &kilobytes) == 1) {
      return kilobytes << 10;
    }
  }
  return 0;
}

TEST(ShareableMemory, IsLargePagesHereAndWhereItIsRead) {
  constexpr int64_t kBytes = (int64_t{6} << 20) + 12345;
  const at::Tensor tensor = ShareableZeros(kBytes, at::kByte);
  if (LargePagesAt(tensor.data_ptr()) == 0) GTEST_SKIP() << "this system has no large pages left";
  EXPECT_EQ(LargePagesAt(tensor.data_ptr()), int64_t{6} << 20);
  EXPECT_EQ(tensor.count_nonzero().item<int64_t>(), 0);
  const auto range = FindShareable(tensor.data_ptr(), kBytes);
  ASSERT_TRUE(range.has_value());
  ASSERT_OK_AND_ASSIGN(const auto mapped, MappedSegment::Map(range->segment->file()));
  tensor.fill_(7);
  int64_t sevens = 0;
  for (int64_t i = 0; i < kBytes; ++i) sevens += mapped->data()[i] == std::byte{7} ? 1 : 0;
  EXPECT_EQ(sevens, kBytes);
  EXPECT_EQ(LargePagesAt(mapped->data()), int64_t{6} << 20);
}

TEST(ShareableMemory, OfFewBytesIsOrdinary) {
  const at::Tensor tensor = ShareableZeros(kLeastShareableBytes - 1, at::kByte);
  EXPECT_TRUE(at::equal(tensor, at::zeros({kLeastShareableBytes - 1}, at::kByte)));
  EXPECT_FALSE(FindShareable(tensor.const_data_ptr(), 1).has_value());
}

TEST(ShareableMemory, IsCounted) {
  static std::atomic<int64_t> bytes{0};
  CountShareable([](int64_t more) { bytes += more; });
  {
    const at::Tensor tensor = ShareableZeros(kBytes, at::kByte);
    EXPECT_EQ(bytes.load(), kBytes);
  }
  EXPECT_EQ(bytes.load(), 0);
  CountShareable(nullptr);
}

TEST(ShareableMemory, IsOrdinaryWhereTheSystemLendsNone) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  const at::Tensor tensor = ShareablePattern(kBytes, 1);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(FindShareable(tensor.const_data_ptr(), 1).has_value());
  // Messages from it go through slots.
  for (const Backend& backend : {kSharedMemory, kSharedMessages}) {
    const auto results = RunRanks(2, backend, [&](ProcessGroup& group) -> absl::Status {
      at::Tensor arrived = at::zeros({kBytes}, at::kByte);
      ASSIGN_OR_RETURN(auto work, group.rank() == 0 ? group.Send(tensor, 1, "t")
                                                    : group.Receive(arrived, 0, "t"));
      RETURN_IF_ERROR(work->Wait());
      return Expect(group.rank() == 0 || at::equal(arrived, tensor), "wrong bytes");
    });
    EXPECT_THAT(results, Each(IsOk()));
  }
}

TEST(MappedSegment, RefusesWhatCouldShrinkUnderItsReader) {
  const host::FileDescriptor file(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(file.get(), 4096), 0);
  EXPECT_THAT(MappedSegment::Map(file).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("sealed")));
}

TEST(MappedSegment, OutlivesTheProcessThatMadeIt) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  // The child keeps the segment's other mapping; the file is opened before, as if handed over.
  auto segment = ShareableSegment::Create(kBytes);
  ASSERT_OK(segment.status());
  std::byte* const data = (*segment)->data();
  const host::FileDescriptor handed(dup((*segment)->file().get()));
  const pid_t child = fork();
  if (child == 0) {
    std::fill(data, data + kBytes, std::byte{42});
    const char byte = 1;
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    while (true) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  auto mapped = MappedSegment::Map(handed);
  ASSERT_OK(mapped.status());
  segment->reset();
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ((*mapped)->size_bytes(), kBytes);
  EXPECT_EQ(std::count((*mapped)->data(), (*mapped)->data() + kBytes, std::byte{42}), kBytes);
  close(ready[0]);
  close(ready[1]);
}

class LentMessages : public ::testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, LentMessages, ::testing::Values(kSharedMemory, kSharedMessages),
                         BackendName);

TEST_P(LentMessages, ArriveInOrderWithOthersBetween) {
  // More than a channel holds; lent ones of one portion and several, from the middle of a segment,
  // and others that are copied, because they are short or lie elsewhere.
  const std::vector<int64_t> sizes = {kLeastLentBytes, 3,       (2 << 20) + 17, 1 << 20, 0,
                                      (1 << 20) + 1,   100'000, 1 << 19,        5,       700'001};
  constexpr int kRounds = 3;
  const auto results = RunRanks(3, GetParam(), [&](ProcessGroup& group) -> absl::Status {
    if (group.rank() == 2) {
      for (int round = 0; round < kRounds; ++round) {
        std::vector<at::Tensor> arrived;
        std::vector<std::unique_ptr<Work>> works;
        for (size_t i = 0; i < sizes.size(); ++i) {
          for (int from = 0; from < 2; ++from) {
            arrived.push_back(at::zeros({sizes[i]}, at::kByte));
            ASSIGN_OR_RETURN(works.emplace_back(), group.Receive(arrived.back(), from, "m"));
          }
        }
        for (size_t w = 0; w < works.size(); ++w) {
          RETURN_IF_ERROR(works[w]->Wait());
          const int64_t seed = static_cast<int64_t>(w / 2) * 10 + static_cast<int64_t>(w % 2);
          RETURN_IF_ERROR(Expect(at::equal(arrived[w], Pattern(arrived[w].numel(), seed)),
                                 absl::StrCat("message ", w)));
        }
      }
      return absl::OkStatus();
    }
    std::vector<at::Tensor> messages;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int64_t seed = static_cast<int64_t>(i) * 10 + group.rank();
      at::Tensor whole =
          i == 6
              ? Pattern(sizes[i], seed)
              : ShareableZeros(sizes[i] + kLeastShareableBytes, at::kByte).narrow(0, 9, sizes[i]);
      messages.push_back(i == 6 ? whole : whole.copy_(Pattern(sizes[i], seed)));
    }
    for (int round = 0; round < kRounds; ++round) {
      std::vector<std::unique_ptr<Work>> works;
      for (const at::Tensor& message : messages) {
        ASSIGN_OR_RETURN(works.emplace_back(), group.Send(message, 2, "m"));
      }
      for (auto& work : works) RETURN_IF_ERROR(work->Wait());
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST_P(LentMessages, AreSentWhenTheyHaveBeenRead) {
  const at::Tensor tensor = ShareablePattern(kBytes, 3);
  absl::Notification looked, read;
  const auto results = RunRanks(2, GetParam(), [&](ProcessGroup& group) -> absl::Status {
    if (group.rank() == 0) {
      ASSIGN_OR_RETURN(auto work, group.Send(tensor, 1, "t"));
      const bool early = work->IsCompleted();
      looked.Notify();
      RETURN_IF_ERROR(Expect(!early, "sent before anyone received it"));
      return work->Wait();
    }
    looked.WaitForNotification();
    at::Tensor arrived = at::zeros({kBytes}, at::kByte);
    ASSIGN_OR_RETURN(auto work, group.Receive(arrived, 0, "t"));
    RETURN_IF_ERROR(work->Wait());
    return Expect(at::equal(arrived, tensor), "wrong bytes");
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST_P(LentMessages, ThatNobodyReadsEndAtTheDeadlineAndNameTheRank) {
  const at::Tensor tensor = ShareablePattern(kBytes, 3);
  absl::Notification over;
  const auto results = RunRanks(
      2, GetParam(),
      [&](ProcessGroup& group) -> absl::Status {
        if (group.rank() == 1) {
          over.WaitForNotification();
          return absl::OkStatus();
        }
        const auto send = [&]() -> absl::Status {
          group.SetTimeout(absl::Milliseconds(200));
          ASSIGN_OR_RETURN(auto work, group.Send(tensor, 1, "layers.3"));
          return work->Wait();
        };
        const absl::Status status = send();
        over.Notify();
        return status;
      },
      absl::Seconds(30));
  EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kDeadlineExceeded,
                                   AllOf(HasSubstr("layers.3"), HasSubstr("waits for rank 1"))));
}

TEST_P(LentMessages, AreAnErrorWhereTheReaderLeaves) {
  // A reader that left at once was lent nothing: then the message goes into slots, and this is more
  // than they hold.
  const at::Tensor tensor = ShareablePattern(int64_t{16} << 20, 3);
  const auto results = RunRanks(2, GetParam(), [&](ProcessGroup& group) -> absl::Status {
    if (group.rank() == 1) return absl::OkStatus();
    ASSIGN_OR_RETURN(auto work, group.Send(tensor, 1, "t"));
    return work->Wait();
  });
  EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 1")));
}

// Two ranks' links, in one process.
class PeerMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = StoreServer::Start();
    ASSERT_OK(store.status());
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    std::vector<std::thread> threads;
    std::vector<absl::Status> statuses(2);
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        const auto connect = [&]() -> absl::Status {
          Rendezvous rendezvous;
          rendezvous.port = (*store)->port();
          rendezvous.prefix = "links";
          ASSIGN_OR_RETURN(auto connection, StoreConnection::Open(rendezvous, deadline, nullptr));
          ASSIGN_OR_RETURN(links_[rank],
                           LocalLinks::Connect(rank, 2, *connection, deadline, nullptr));
          return absl::OkStatus();
        };
        statuses[rank] = connect();
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_THAT(statuses, Each(IsOk()));
    lender_ = std::make_unique<PeerMemory>(*links_[0]);
    borrower_ = std::make_unique<PeerMemory>(*links_[1]);
  }

  std::unique_ptr<LocalLinks> links_[2];
  std::unique_ptr<PeerMemory> lender_, borrower_;
};

TEST_F(PeerMemoryTest, LendsWhatIsShareableAndNotSmall) {
  const at::Tensor tensor = ShareablePattern(kBytes, 5);
  const auto* const data = static_cast<const std::byte*>(tensor.const_data_ptr());
  const at::Tensor ordinary = Pattern(kBytes, 5);
  EXPECT_FALSE(lender_->Lend(1, ordinary.const_data_ptr(), kBytes).has_value());
  EXPECT_FALSE(lender_->Lend(1, data, kLeastLentBytes - 1).has_value());
  for (int again = 0; again < 2; ++again) {
    const auto lent = lender_->Lend(1, data + 7, kBytes - 7);
    ASSERT_TRUE(lent.has_value());
    const auto borrowed = borrower_->Borrow(0, *lent, kBytes - 7);
    ASSERT_OK(borrowed.status());
    EXPECT_NE(*borrowed, data + 7);
    EXPECT_TRUE(std::equal(data + 7, data + kBytes, *borrowed));
  }
}

TEST_F(PeerMemoryTest, RefusesDamagedPlacesAndNamesTheRank) {
  const at::Tensor tensor = ShareablePattern(kBytes, 5);
  const auto lent = lender_->Lend(1, tensor.const_data_ptr(), kBytes);
  ASSERT_TRUE(lent.has_value());
  const auto refused = StatusIs(absl::StatusCode::kInternal, HasSubstr("rank 0 lends memory"));
  const auto damaged = [&](auto damage) {
    LentBytes bad = *lent;
    damage(bad);
    return borrower_->Borrow(0, bad, kBytes).status();
  };
  EXPECT_THAT(damaged([](LentBytes& bad) { bad.magic ^= 1; }), refused);
  EXPECT_THAT(damaged([](LentBytes& bad) { bad.offset = -1; }), refused);
  EXPECT_THAT(damaged([](LentBytes& bad) { bad.offset = 1; }), refused);
  EXPECT_THAT(damaged([](LentBytes& bad) { bad.offset = int64_t{1} << 62; }), refused);
  EXPECT_THAT(damaged([](LentBytes& bad) { --bad.size_bytes; }), refused);
  EXPECT_THAT(damaged([](LentBytes& bad) { bad.segment ^= 1 << 20; }), refused);
  EXPECT_THAT(borrower_->Borrow(0, *lent, kBytes + 1).status(), refused);
  EXPECT_OK(borrower_->Borrow(0, *lent, kBytes).status());
}

TEST_F(PeerMemoryTest, LendsNothingToOneThatIsGone) {
  const at::Tensor tensor = ShareablePattern(kBytes, 5);
  borrower_.reset();
  links_[1].reset();
  EXPECT_FALSE(lender_->Lend(1, tensor.const_data_ptr(), kBytes).has_value());
}

TEST_F(PeerMemoryTest, KeepsWhatItMappedWhenTheLenderIsGone) {
  at::Tensor tensor = ShareablePattern(kBytes, 5);
  const auto lent = lender_->Lend(1, tensor.const_data_ptr(), kBytes);
  ASSERT_TRUE(lent.has_value());
  lender_.reset();
  links_[0].reset();
  tensor.reset();
  const auto borrowed = borrower_->Borrow(0, *lent, kBytes);
  ASSERT_OK(borrowed.status());
  const at::Tensor expected = Pattern(kBytes, 5);
  EXPECT_TRUE(std::equal(*borrowed, *borrowed + kBytes,
                         static_cast<const std::byte*>(expected.const_data_ptr())));
}

}  // namespace
}  // namespace tandem::comm
