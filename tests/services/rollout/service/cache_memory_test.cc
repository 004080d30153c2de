#include "services/rollout/service/cache_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/gpu_memory.h"
#include "common/model/transformer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"

namespace tandem::rollout {
namespace {

TEST(CacheMemory, TheStatedSizeHoldsAndACpuHasADefault) {
  ASSERT_OK_AND_ASSIGN(model::ModelSpec spec,
                       model::ParseModelSpec(testing::TinyModelConfig("Qwen2ForCausalLM"), "tiny"));
  const model::Transformer model(std::move(spec));
  EngineOptions on_cpu;
  ASSERT_OK(DivideMemory(3, model, nullptr, on_cpu));
  EXPECT_EQ(on_cpu.kv_cache_bytes, int64_t{3} << 20);
  ASSERT_OK(DivideMemory(0, model, nullptr, on_cpu));
  EXPECT_EQ(on_cpu.kv_cache_bytes, int64_t{512} << 20);
  EXPECT_TRUE(on_cpu.staged_on.is_cpu());
}

TEST(CacheMemory, AGpuGivesHalfOfWhatIsFree) {
  EXPECT_EQ(model::DefaultCacheBytesOnGpu(10), 5);
  EXPECT_EQ(model::DefaultCacheBytesOnGpu(-1), 0);
}

TEST(CacheMemory, AGpuReceivesWeightsIfTwoCopiesLeaveAQuarter) {
  EXPECT_TRUE(model::StagesWeightsOnGpu(/*free_bytes=*/80, /*weight_bytes=*/30, 0));
  EXPECT_FALSE(model::StagesWeightsOnGpu(80, 31, 0));
  EXPECT_TRUE(model::StagesWeightsOnGpu(80, 15, /*cache_bytes=*/30));
  EXPECT_FALSE(model::StagesWeightsOnGpu(80, 15, 31));
}

}  // namespace
}  // namespace tandem::rollout
