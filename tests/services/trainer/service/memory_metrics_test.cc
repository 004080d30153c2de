#include "services/trainer/service/memory_metrics.h"

#include <gtest/gtest.h>

namespace tandem::trainer {
namespace {

MemoryBytes Bytes(int64_t parameters, int64_t gradients, int64_t buffers, int64_t offloaded) {
  MemoryBytes bytes;
  bytes.parameters = parameters;
  bytes.gradients = gradients;
  bytes.buffers = buffers;
  bytes.offloaded = offloaded;
  return bytes;
}

TEST(MemoryMetricsTest, ActivationsAreWhatNoModelHolds) {
  RankMemory memory;
  memory.policy = Bytes(400, 400, 30, 0);
  memory.optimizer = 800;
  memory.reference = Bytes(200, 0, 20, 200);
  memory.critic = Bytes(40, 40, 10, 0);
  memory.critic_optimizer = 80;
  memory.peak_tensors = 400 + 400 + 800 + 40 + 40 + 80 + 60 + 7;
  Metrics metrics;
  AddMemoryMetrics(memory, metrics);
  EXPECT_EQ(metrics["perf/critic_bytes"], 160);
  EXPECT_EQ(metrics["perf/reference_bytes"], 200);
  EXPECT_EQ(metrics["perf/offloaded_bytes"], 200);
  EXPECT_EQ(metrics["perf/buffer_bytes"], 60);
  EXPECT_EQ(metrics["perf/activation_bytes"], 7);
}

TEST(MemoryMetricsTest, ModelsThatAreNotThereHaveNoMetric) {
  Metrics metrics;
  AddMemoryMetrics({.policy = Bytes(4, 4, 0, 0), .optimizer = 8, .peak_tensors = 16}, metrics);
  EXPECT_EQ(metrics.count("perf/critic_bytes"), 0);
  EXPECT_EQ(metrics.count("perf/reference_bytes"), 0);
  EXPECT_EQ(metrics["perf/activation_bytes"], 0);
}

}  // namespace
}  // namespace tandem::trainer
