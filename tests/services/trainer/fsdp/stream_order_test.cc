// What the side stream waits for before a collective writes a buffer or reads a shard. On a CPU a
// missing wait changes nothing, so these tests look at the waits themselves.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/trainer/fsdp/buffer_pool.h"
#include "services/trainer/fsdp/sharded_transformer.h"
#include "services/trainer/fsdp/state_memory.h"
#include "tests/fakes/local_process_group.h"
#include "tests/fakes/recording_device.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::RecordingDevice;

TEST(BufferPool, AFreshBufferIsReadyOnlyAfterTheComputeBeforeIt) {
  RecordingDevice device;
  BufferPool pool(device);
  device.Compute();
  const BufferPool::Buffer fresh = pool.Acquire(8, at::kFloat);
  ASSERT_NE(fresh.last_use, nullptr);
  EXPECT_EQ(RecordingDevice::PointOf(*fresh.last_use), 1);
}

TEST(BufferPool, AReusedBufferIsReadyAfterTheComputeBeforeItsRelease) {
  RecordingDevice device;
  BufferPool pool(device);
  BufferPool::Buffer buffer = pool.Acquire(8, at::kFloat);
  device.Compute();
  pool.Release(std::move(buffer.tensor));
  device.Compute();
  const BufferPool::Buffer reused = pool.Acquire(8, at::kFloat);
  ASSERT_NE(reused.last_use, nullptr);
  EXPECT_EQ(RecordingDevice::PointOf(*reused.last_use), 1);
}

// A rank whose micro-batch is empty copies nothing to its device, so no copy orders its gathers.
TEST(ShardedModel, GathersOfAnEmptyMicroBatchWaitForWhatWroteTheShards) {
  testing::LocalWorld world(2);
  world.Run([](comm::ProcessGroup& group) {
    const comm::DeviceMesh mesh(group);
    ShardedModelOptions options;
    options.spec = SmallSpec();
    options.mesh = &mesh;
    const auto device = std::make_shared<RecordingDevice>();
    ASSERT_OK_AND_ASSIGN(auto memory, StateMemory::Create(Offload::kNone, "", at::kCPU));
    ShardedTransformer model(options, device, std::move(memory));
    ASSERT_OK(model.Forward(PackedBatch()).status());  // the pool now has buffers of earlier passes
    const size_t issues_before = device->issues().size();

    device->Compute();  // the optimizer writes the shards
    ASSERT_OK(model.Forward(PackedBatch()).status());

    ASSERT_GT(device->issues().size(), issues_before);
    for (size_t i = issues_before; i < device->issues().size(); ++i) {
      EXPECT_GE(device->issues()[i].waited_for, 1) << "operation " << i;
    }
  });
}

}  // namespace
}  // namespace tandem::trainer
