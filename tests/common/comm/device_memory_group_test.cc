// The group of one device's ranks, with a device that is the memory of this process.
#include "common/comm/device_memory_group.h"

#include <ATen/ATen.h>

#include <cstring>

#include "common/comm/wait_on_host.h"
#include "tests/common/comm/local_ranks.h"
#include "tests/support/status_matchers.h"

namespace tandem::comm {
namespace {

using ::tandem::testing::IsOk;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// Offers an address; counts those that are not taken yet.
class SameProcess : public DeviceSharing {
 public:
  std::string Place() const override { return "here"; }
  absl::StatusOr<SharedBytes> Offer(const at::Tensor& tensor) override {
    SharedBytes out;
    const auto address = reinterpret_cast<uint64_t>(tensor.const_data_ptr());
    out.handle.assign(reinterpret_cast<const char*>(&address), sizeof(address));
    out.holder = std::make_shared<at::Tensor>(tensor);
    return out;
  }
  absl::Status Take(const std::string& handle, const at::Tensor& to, absl::Time) override {
    if (fail_at-- == 0) return absl::InternalError("the device is lost");
    uint64_t address = 0;
    std::memcpy(&address, handle.data(), sizeof(address));
    std::memcpy(to.data_ptr(), reinterpret_cast<const void*>(address), to.nbytes());
    return absl::OkStatus();
  }

  int fail_at = -1;
};

absl::StatusOr<std::unique_ptr<ProcessGroup>> Create(const GroupOptions& options) {
  return CreateDeviceMemoryGroup(options, std::make_unique<SameProcess>());
}
constexpr Backend kDeviceMemory = {"DeviceMemory", &Create};

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateThatFailsAtRankOne(
    const GroupOptions& options) {
  auto sharing = std::make_unique<SameProcess>();
  if (options.rank == 1) sharing->fail_at = 0;
  return CreateDeviceMemoryGroup(options, std::move(sharing));
}
constexpr Backend kFailing = {"Failing", &CreateThatFailsAtRankOne};

absl::Status Expect(bool condition, const std::string& what) {
  return condition ? absl::OkStatus() : absl::InternalError(what);
}

TEST(DeviceMemoryGroup, ABroadcastReachesEveryRank) {
  const auto results = RunRanks(3, kDeviceMemory, [](ProcessGroup& group) -> absl::Status {
    for (int root = 0; root < 3; ++root) {
      at::Tensor tensor = at::full({1000}, group.rank() == root ? root + 7 : -1, at::kInt);
      ASSIGN_OR_RETURN(auto work, group.Broadcast(tensor, root, "bucket"));
      RETURN_IF_ERROR(WaitOnHost(group, *work));
      RETURN_IF_ERROR(Expect((tensor == root + 7).all().item<bool>(), "wrong values"));
    }
    return group.Barrier("end");
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST(DeviceMemoryGroup, MessagesOfAPairArriveInOrderBothWaysHoweverTheyAreWaitedFor) {
  const auto results = RunRanks(2, kDeviceMemory, [](ProcessGroup& group) -> absl::Status {
    const int peer = 1 - group.rank();
    std::vector<at::Tensor> arriving;
    std::vector<std::unique_ptr<Work>> receiving, sending;
    for (int i = 0; i < 5; ++i) {
      const at::Tensor leaving = at::full({64}, 10 * group.rank() + i, at::kInt);
      arriving.push_back(at::zeros({64}, at::kInt));
      ASSIGN_OR_RETURN(auto sent, group.Send(leaving, peer, "message"));
      ASSIGN_OR_RETURN(auto received, group.Receive(arriving.back(), peer, "message"));
      sending.push_back(std::move(sent));
      receiving.push_back(std::move(received));
    }
    for (int i = 4; i >= 0; --i) RETURN_IF_ERROR(receiving[i]->Wait());
    for (auto& work : sending) RETURN_IF_ERROR(work->Wait());
    for (int i = 0; i < 5; ++i) {
      RETURN_IF_ERROR(
          Expect((arriving[i] == 10 * peer + i).all().item<bool>(), absl::StrCat("message ", i)));
    }
    return group.Barrier("end");
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST(DeviceMemoryGroup, WhatSendsIsDoneOnlyWhenTheBytesAreTaken) {
  const auto results = RunRanks(2, kDeviceMemory, [](ProcessGroup& group) -> absl::Status {
    at::Tensor bucket = at::full({1 << 16}, group.rank() == 0 ? 5 : 0, at::kInt);
    if (group.rank() == 0) {
      ASSIGN_OR_RETURN(auto work, group.Send(bucket, 1, "bucket"));
      RETURN_IF_ERROR(work->Wait());
      bucket.fill_(6);  // the next one
      return group.Barrier("filled");
    }
    ASSIGN_OR_RETURN(auto work, group.Receive(bucket, 0, "bucket"));
    RETURN_IF_ERROR(work->Wait());
    RETURN_IF_ERROR(group.Barrier("filled"));
    return Expect((bucket == 5).all().item<bool>(), "the sender's next bytes");
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST(DeviceMemoryGroup, AReceiverThatNeverComesIsADeadlineWithTheBucketsName) {
  const auto results = RunRanks(2, kDeviceMemory, [](ProcessGroup& group) -> absl::Status {
    if (group.rank() == 1) {
      group.Barrier("end").IgnoreError();  // until the sender has given up
      return absl::OkStatus();
    }
    group.SetTimeout(absl::Milliseconds(300));
    ASSIGN_OR_RETURN(auto work, group.Send(at::zeros({8}, at::kByte), 1, "bucket 3"));
    return work->Wait();
  });
  EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("bucket 3")));
}

TEST(DeviceMemoryGroup, AFailureOfTheDeviceBreaksTheGroupOnBothSides) {
  const auto results = RunRanks(2, kFailing, [](ProcessGroup& group) -> absl::Status {
    const at::Tensor bucket = at::zeros({8}, at::kByte);
    ASSIGN_OR_RETURN(auto work, group.rank() == 0 ? group.Send(bucket, 1, "bucket 3")
                                                  : group.Receive(bucket, 0, "bucket 3"));
    const absl::Status status = work->Wait();
    const auto next = group.Broadcast(bucket, 0, "next");
    RETURN_IF_ERROR(Expect(absl::IsFailedPrecondition(next.status()), next.status().ToString()));
    return status;
  });
  EXPECT_FALSE(results[0].ok());
  EXPECT_THAT(results[1], StatusIs(absl::StatusCode::kInternal,
                                   AllOf(HasSubstr("receive 'bucket 3'"), HasSubstr("from rank 0"),
                                         HasSubstr("the device is lost"))));
}

TEST(DeviceMemoryGroup, ReductionsAreLeftToNccl) {
  const auto results = RunRanks(2, kDeviceMemory, [](ProcessGroup& group) -> absl::Status {
    return group.AllReduce(at::zeros({1}), ReduceOp::kSum, "sum").status();
  });
  EXPECT_THAT(results, Each(StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("NCCL"))));
}

}  // namespace
}  // namespace tandem::comm
