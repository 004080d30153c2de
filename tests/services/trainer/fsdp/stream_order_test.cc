// What the side stream waits for before a collective writes a buffer or reads a shard. On a CPU a
// missing wait changes nothing, so these tests look at the waits themselves.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/trainer/fsdp/buffer_pool.h"
#include "services/trainer/fsdp/sharded_transformer.h"
#include "services/trainer/fsdp/state_memory.h"
#include "tests/fakes/local_process_group.h"
#include "tests/fakes/recording_streams.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::RecordingStreams;

TEST(BufferPool, AFreshBufferIsReadyOnlyAfterTheComputeBeforeIt) {
  RecordingStreams streams;
  BufferPool pool(at::kCPU, streams);
  streams.Compute();
  const BufferPool::Buffer fresh = pool.Acquire(8, at::kFloat);
  ASSERT_NE(fresh.last_use, nullptr);
  EXPECT_EQ(RecordingStreams::PointOf(*fresh.last_use), 1);
}

TEST(BufferPool, AReusedBufferIsReadyAfterTheComputeBeforeItsRelease) {
  RecordingStreams streams;
  BufferPool pool(at::kCPU, streams);
  BufferPool::Buffer buffer = pool.Acquire(8, at::kFloat);
  streams.Compute();
  pool.Release(std::move(buffer.tensor));
  streams.Compute();
  const BufferPool::Buffer reused = pool.Acquire(8, at::kFloat);
  ASSERT_NE(reused.last_use, nullptr);
  EXPECT_EQ(RecordingStreams::PointOf(*reused.last_use), 1);
}

// A rank whose micro-batch is empty copies nothing to its device, so no copy orders its gathers.
TEST(ShardedModel, GathersOfAnEmptyMicroBatchWaitForWhatWroteTheShards) {
  testing::LocalWorld world(2);
  world.Run([](comm::ProcessGroup& group) {
    const comm::DeviceMesh mesh(group);
    ShardedModelOptions options;
    options.spec = SmallSpec();
    options.mesh = &mesh;
    auto owned_streams = std::make_unique<RecordingStreams>();
    RecordingStreams& streams = *owned_streams;
    ASSERT_OK_AND_ASSIGN(auto memory, StateMemory::Create(Offload::kNone, "", at::kCPU));
    ShardedTransformer model(options, std::move(owned_streams), std::move(memory));
    ASSERT_OK(model.Forward(PackedBatch()).status());  // the pool now has buffers of earlier passes
    const size_t issues_before = streams.issues().size();

    streams.Compute();  // the optimizer writes the shards
    ASSERT_OK(model.Forward(PackedBatch()).status());

    ASSERT_GT(streams.issues().size(), issues_before);
    for (size_t i = issues_before; i < streams.issues().size(); ++i) {
      EXPECT_GE(streams.issues()[i].waited_for, 1) << "operation " << i;
    }
  });
}

}  // namespace
}  // namespace tandem::trainer
