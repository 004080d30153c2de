#include "services/rollout/service/cache_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/default_cache.h"
#include "common/model/transformer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"

namespace tandem::rollout {
namespace {

TEST(CacheMemory, TheStatedSizeHoldsAndACpuHasADefault) {
  ASSERT_OK_AND_ASSIGN(model::ModelSpec spec,
                       model::ParseModelSpec(testing::TinyModelConfig("Qwen2ForCausalLM"), "tiny"));
  const model::Transformer model(std::move(spec));
  const EngineOptions on_cpu;
  ASSERT_OK_AND_ASSIGN(const int64_t stated, CacheBytes(3, on_cpu, model, nullptr));
  EXPECT_EQ(stated, int64_t{3} << 20);
  ASSERT_OK_AND_ASSIGN(const int64_t unstated, CacheBytes(0, on_cpu, model, nullptr));
  EXPECT_EQ(unstated, int64_t{512} << 20);
}

TEST(CacheMemory, AGpuGivesHalfOfWhatIsFree) {
  EXPECT_EQ(model::DefaultCacheBytesOnGpu(10), 5);
  EXPECT_EQ(model::DefaultCacheBytesOnGpu(-1), 0);
}

}  // namespace
}  // namespace tandem::rollout
