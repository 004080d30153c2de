// A cache of latents gives the log-probs of one of keys and values, but for the last bits: whatever
// shares the batch, however prompts are cut, and with windows.
#include <gmock/gmock.h>

#include "tests/common/model/latent_cases.h"

namespace tandem::model {
namespace {

class LatentCacheTest : public ::testing::TestWithParam<ExactCase> {};

TEST_P(LatentCacheTest, HasTheLogProbsOfTheTrainer) { CompareWithTrainer(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Shapes, LatentCacheTest, ::testing::ValuesIn(LatentCases()),
                         ExactCaseName);

TEST(LatentCache, TakesOneRowOfLatentAndKeyPartForEachToken) {
  const PagedKvCacheOptions options{.num_layers = 3,
                                    .num_blocks = 4,
                                    .block_size = 32,
                                    .num_kv_heads = 1,
                                    .head_dim = 40,
                                    .v_head_dim = 32,
                                    .shared = true};
  EXPECT_EQ(PagedKvCache::BytesPerBlock(options), 3 * 32 * 40 * 4);
  ASSERT_OK_AND_ASSIGN(PagedKvCache cache, PagedKvCache::Create(options));
  EXPECT_EQ(cache.keys(1).sizes(), (std::vector<int64_t>{4, 1, 32, 40}));
  EXPECT_EQ(cache.keys(1).data_ptr(), cache.values(1).data_ptr());
  cache.keys(1)[2].fill_(7.0);
  cache.keys(1)[0].fill_(1.0);
  cache.CopyBlock(2, 0);
  EXPECT_EQ(cache.keys(1)[0].min().item<float>(), 7.0f);
}

TEST(LatentCache, RefusesSizesThatNoLatentHas) {
  PagedKvCacheOptions options{.num_layers = 1,
                              .num_blocks = 1,
                              .num_kv_heads = 2,
                              .head_dim = 8,
                              .v_head_dim = 4,
                              .shared = true};
  EXPECT_THAT(
      PagedKvCache::Create(options).status(),
      testing::StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("found 2")));
  options.num_kv_heads = 1;
  options.v_head_dim = 9;
  EXPECT_THAT(PagedKvCache::Create(options).status(),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                ::testing::HasSubstr("9 of 8 elements")));
}

}  // namespace
}  // namespace tandem::model
