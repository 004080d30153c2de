// Mistakes in ordering, planted one by one, and the same programs without the mistake. Each mistake
// is reported whatever the delays were, with both operations; the programs without it are not.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/device/device.h"
#include "common/device/side_stream.h"
#include "tests/simulator/accelerator.h"
#include "tests/simulator/nccl.h"
#include "tests/support/status_matchers.h"

namespace tandem::testing {
namespace {

using device::Event;
using device::Stream;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kNumel = 256;

// true: with the mistake.
class PlantedFault : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { accelerator_.Restart({.seed = 9}); }
  void TearDown() override { accelerator_.Restart({}); }

  bool planted() const { return GetParam(); }
  at::Tensor Floats(double value) const {
    return at::full({kNumel}, value, at::TensorOptions(at::kFloat).device(place_));
  }
  // With the mistake: a fault that names both operations. Without: none.
  void Expect(const std::string& later, const std::string& earlier) {
    const std::vector<std::string> faults = accelerator_.TakeFaults();
    if (planted()) {
      EXPECT_THAT(faults, Contains(AllOf(HasSubstr(later), HasSubstr(earlier))));
    } else {
      EXPECT_THAT(faults, IsEmpty());
    }
  }

  SimulatedAccelerator& accelerator_ = SimulatedAccelerator::Get();
  const c10::Device place_ = accelerator_.device(0);
  const std::shared_ptr<device::Device> device_ = device::Device::Create(place_).value();
  const std::unique_ptr<Stream> side_ = device_->NewStream(device::Priority::kNormal);
  const std::unique_ptr<Stream> other_ = device_->NewStream(device::Priority::kNormal);
};
INSTANTIATE_TEST_SUITE_P(All, PlantedFault, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Planted" : "Correct"; });

TEST_P(PlantedFault, AReaderDoesNotWaitForTheWriter) {
  const at::Tensor x = Floats(1);
  const auto written = device_->Record("x");
  at::Tensor y;
  {
    const auto turn = device_->Use(*side_);
    if (!planted()) device_->Wait(*written);
    y = x.exp();
  }
  device_->Synchronize();
  Expect("aten::exp", "aten::fill_");
}

TEST_P(PlantedFault, AWriterDoesNotWaitForTheReader) {
  at::Tensor x = Floats(1);
  device_->Synchronize();
  const at::Tensor y = x.exp();
  const auto read = device_->Record("x is read");
  {
    const auto turn = device_->Use(*side_);
    if (!planted()) device_->Wait(*read);
    x.zero_();
  }
  Expect("writes", "aten::exp");
}

TEST_P(PlantedFault, AnEventIsRecordedTooEarly) {
  at::Tensor x = Floats(1);
  const auto early = device_->Record("too early");
  x.add_(1);
  const auto late = device_->Record("after the addition");
  {
    const auto turn = device_->Use(*side_);
    device_->Wait(planted() ? *early : *late);
    x.exp();
  }
  Expect("aten::exp", "aten::add");
}

TEST_P(PlantedFault, AnotherStreamWaits) {
  const at::Tensor x = Floats(1);
  const auto written = device_->Record("x");
  {
    const auto turn = device_->Use(planted() ? *other_ : *side_);
    device_->Wait(*written);
  }
  {
    const auto turn = device_->Use(*side_);
    x.exp();
  }
  Expect("aten::exp", "aten::fill_");
}

TEST_P(PlantedFault, TheHostSynchronizesWithTheWrongStream) {
  at::Tensor x;
  {
    const auto turn = device_->Use(*side_);
    x = Floats(1);
  }
  {
    const auto turn = device_->Use(planted() ? *other_ : *side_);
    device_->Synchronize();
  }
  x.exp();
  Expect("aten::exp", "aten::fill_");
}

TEST_P(PlantedFault, AnEventOfAnEarlierRoundIsAwaited) {
  at::Tensor x = Floats(0);
  std::shared_ptr<Event> last = device_->Record("round 0");
  std::shared_ptr<Event> read;
  for (int round = 1; round < 3; ++round) {
    if (read != nullptr) device_->Wait(*read);
    x.add_(1);
    const std::shared_ptr<Event> now = device_->Record("this round");
    const auto turn = device_->Use(*side_);
    device_->Wait(planted() ? *last : *now);
    x.exp();
    read = device_->Record("x is read");
    last = now;
  }
  Expect("aten::exp", "aten::add");
}

// The pool's mistake R1: a fresh block that queued work on its stream still uses is written by
// another stream.
TEST_P(PlantedFault, AFreshBlockIsWrittenByAnotherStream) {
  {
    const at::Tensor temporary = Floats(1);
    temporary.exp();
  }
  at::Tensor fresh = at::empty({kNumel}, at::TensorOptions(at::kFloat).device(place_));
  const auto computed = device_->Record("compute so far");
  {
    const auto turn = device_->Use(*side_);
    if (!planted()) device_->Wait(*computed);
    fresh.fill_(2);
  }
  Expect("aten::fill_", "stream 0");
}

TEST_P(PlantedFault, ATensorIsFreedWhileAnotherStreamReadsIt) {
  at::Tensor x = Floats(1);
  const auto written = device_->Record("x");
  std::shared_ptr<Event> read;
  {
    const auto turn = device_->Use(*side_);
    device_->Wait(*written);
    x.exp();
    read = device_->Record("x is read");
  }
  if (!planted()) device_->Wait(*read);
  x.reset();
  const at::Tensor next = Floats(3);  // gets the block
  Expect("aten::fill_", "aten::exp");
}

TEST_P(PlantedFault, WorkIsQueuedOnMemoryThatWasFreed) {
  at::Tensor x = Floats(1);
  const void* const address = x.storage().data();
  const size_t size = x.nbytes();
  if (planted()) x.reset();
  accelerator_.Enqueue(SimulatedAccelerator::CurrentStream(0),
                       {"a kernel", {{address, size}}, {}, [] {}});
  Expect("a kernel", "not allocated");
}

TEST_P(PlantedFault, PinnedMemoryIsReadByAnotherStreamTooEarly) {
  const at::Tensor host = device_->HostBuffer(4096).value();
  host.copy_(at::ones({4096}, at::TensorOptions(at::kByte).device(place_)), /*non_blocking=*/true);
  const auto arrived = device_->Record("the bytes on the host");
  {
    const auto turn = device_->Use(*side_);
    if (!planted()) device_->Wait(*arrived);
    const at::Tensor again = device_->Buffer(4096).value();
    again.copy_(host, /*non_blocking=*/true);
    device_->Synchronize();
  }
  device_->Synchronize();
  Expect("copy from the host", "copy to the host");
}

// Collectives of two ranks, through NcclGroup.
class PlantedCollectiveFault : public PlantedFault {
 protected:
  // `body` runs on both ranks; the mistakes are looked for on rank 0.
  void Run(const std::function<void(comm::ProcessGroup&, device::Device&, at::Tensor full,
                                    at::Tensor shard)>& body) {
    SimulatedNcclWorld world(2);
    world.Run([&](comm::ProcessGroup& group) {
      const auto device = device::Device::Create(accelerator_.device(group.rank())).value();
      const at::TensorOptions options = at::TensorOptions(at::kFloat).device(device->device());
      const at::Tensor full = at::zeros({2 * kNumel}, options);
      const at::Tensor shard = at::ones({kNumel}, options);
      body(group, *device, full, shard);
      device->Synchronize();
      ASSERT_OK(group.Barrier("the end"));
    });
  }
};
INSTANTIATE_TEST_SUITE_P(All, PlantedCollectiveFault, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Planted" : "Correct"; });

TEST_P(PlantedCollectiveFault, TheResultIsReadWithoutAWait) {
  Run([&](comm::ProcessGroup& group, device::Device&, at::Tensor full, at::Tensor shard) {
    ASSERT_OK_AND_ASSIGN(auto work, group.AllGather(full, shard, "test"));
    if (!planted()) {
      ASSERT_OK(work->Wait());
    }
    full.exp();
    ASSERT_OK(work->Wait());
  });
  Expect("aten::exp", "all_gather");
}

TEST_P(PlantedCollectiveFault, TheInputIsOverwrittenWithoutAWait) {
  Run([&](comm::ProcessGroup& group, device::Device&, at::Tensor full, at::Tensor shard) {
    ASSERT_OK_AND_ASSIGN(auto work, group.AllGather(full, shard, "test"));
    if (!planted()) {
      ASSERT_OK(work->Wait());
    }
    shard.add_(1);
    ASSERT_OK(work->Wait());
  });
  Expect("aten::add", "all_gather");
}

TEST_P(PlantedCollectiveFault, TheCollectiveIsIssuedOnAStreamThatDidNotWait) {
  Run([&](comm::ProcessGroup& group, device::Device& device, at::Tensor full, at::Tensor shard) {
    device::SideStream side(device);
    shard.add_(1);
    const auto written = device.Record("the shard");
    std::unique_ptr<comm::Work> work;
    side.IssueAfter({planted() ? nullptr : written.get()},
                    [&] { work = group.AllGather(full, shard, "test").value(); });
    ASSERT_OK(work->Wait());
  });
  Expect("all_gather", "aten::add");
}

TEST_P(PlantedCollectiveFault, AReductionOverwritesWhatComputeStillReads) {
  Run([&](comm::ProcessGroup& group, device::Device& device, at::Tensor full, at::Tensor shard) {
    device::SideStream side(device);
    const auto made = device.Record("the tensors");
    const at::Tensor read = shard.exp();
    const auto was_read = device.Record("the shard has been read");
    std::unique_ptr<comm::Work> work;
    side.IssueAfter({planted() ? made.get() : was_read.get()},
                    [&] { work = group.ReduceScatter(shard, full, "test").value(); });
    ASSERT_OK(work->Wait());
  });
  Expect("reduce_scatter", "aten::exp");
}

}  // namespace
}  // namespace tandem::testing
