#include <gtest/gtest.h>

#include "services/rollout/engine/engine.h"
#include "tests/services/rollout/engine/engine_fixture.h"
#include "tests/support/count_allocations.h"

namespace tandem::rollout {
namespace {

constexpr int64_t kFewTokens = 40;
constexpr int64_t kManyTokens = 200;

class StepAllocationTest : public EngineTest {
 protected:
  void SetUp() override {
    if (testing::kSanitizerKeepsMemory) GTEST_SKIP() << "a sanitizer allocates for itself";
  }

  // Allocations of a request for four samples of so many tokens.
  int64_t CountOf(const FilterParams& filter, int64_t max_tokens) {
    GenerationRequest request;
    request.prompt_ids = Prompt(20);
    request.filter = filter;
    request.seed = 7;
    request.n = 4;
    request.max_tokens = max_tokens;
    Outcome outcome;
    const int64_t before = testing::num_allocations;
    Submit(request, outcome);
    EXPECT_TRUE(outcome.Wait());
    EXPECT_OK(outcome.status());
    return testing::num_allocations - before;
  }

  // What more steps allocate is their samples' own: lists of tokens, which double, and blocks that
  // enter the cache. It is less than one a step, of four samples and all layers.
  void ExpectStepsAllocateNothing(const FilterParams& filter) {
    CountOf(filter, kManyTokens);  // all sizes have been seen then
    EXPECT_LT(CountOf(filter, kManyTokens) - CountOf(filter, kFewTokens), kManyTokens - kFewTokens);
  }
};

TEST_F(StepAllocationTest, OfFloat32) {
  StartRandom({});
  ExpectStepsAllocateNothing({});
}

TEST_F(StepAllocationTest, OfBFloat16) {
  StartRandom({.dtype = at::kBFloat16});
  ExpectStepsAllocateNothing({});
}

TEST_F(StepAllocationTest, OfModelsThatNormalizeHeads) {
  model::ModelSpec spec = SmallSpec();
  spec.architecture = "Qwen3ForCausalLM";
  for (model::LayerSpec& layer : spec.layers) {
    layer.attention.qkv_bias = false;
    layer.attention.qk_norm.emplace();
  }
  StartRandom({}, spec);
  ExpectStepsAllocateNothing({});
}

TEST_F(StepAllocationTest, OfEveryFilter) {
  StartRandom({});
  for (const FilterParams& filter :
       {FilterParams{.temperature = 0.0}, FilterParams{.temperature = 0.7},
        FilterParams{.top_k = 20}, FilterParams{.top_p = 0.9}, FilterParams{.min_p = 0.05},
        FilterParams{.temperature = 1.2, .top_k = 30, .top_p = 0.95, .min_p = 0.01}}) {
    ExpectStepsAllocateNothing(filter);
  }
}

}  // namespace
}  // namespace tandem::rollout
