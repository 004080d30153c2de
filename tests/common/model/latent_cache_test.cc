// A cache of latents gives the log-probs of one of keys and values, but for the last bits: whatever
// shares the batch, however prompts are cut, and with windows.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/common/model/exact_numerics.h"

namespace tandem::model {
namespace {

std::vector<ExactCase> LatentCases() {
  std::vector<ExactShape> shapes;
  for (const ExactShape& shape : LatentShapes()) {
    if (!shape.latent.has_value()) continue;
    shapes.push_back(shape);
    ExactShape windowed = shape;
    windowed.name = shape.latent->q_rank > 0 ? "windowed" : "windowed_no_q_rank";
    windowed.window = 20;
    shapes.push_back(windowed);
  }
  // More heads than one task takes, and a latent that does not fill whole registers.
  ExactShape many{"heads40_latent21", 40, 40, 12, 48, 80, 131};
  many.v_head_dim = 5;
  many.latent = LatentSpec{.q_rank = 20, .kv_rank = 21, .rope_dim = 4};
  shapes.push_back(many);
  std::vector<ExactCase> cases = ExactCases(shapes);
  std::erase_if(cases, [](const ExactCase& each) { return each.threads == 1; });
  for (ExactCase& each : cases) {
    each.latents = LatentCache::kLatents;
    each.longest = 150;
  }
  return cases;
}

class LatentCacheTest : public ::testing::TestWithParam<ExactCase> {};

double MeanDifference(const std::vector<float>& a, const std::vector<float>& b, double& largest) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    largest = std::max(largest, std::isnan(difference) ? 1e30 : difference);
    sum += difference;
  }
  return a.empty() ? 0.0 : sum / static_cast<double>(a.size());
}

TEST_P(LatentCacheTest, HasTheLogProbsOfTheTrainer) {
  const bool wide = GetParam().dtype == at::kFloat;
  at::set_num_threads(GetParam().threads);
  ExactNumerics model(GetParam(), /*seed=*/3);
  const auto sequences = model.DrawSequences(4);
  const std::vector<TokenResults> cached = model.Paged(sequences, 16);
  const std::vector<TokenResults> in_larger_blocks = model.Paged(sequences, 48);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const TokenResults alone = model.Alone(sequences[i]);
    for (const TokenResults& found : {cached[i], in_larger_blocks[i]}) {
      ASSERT_EQ(found.logprobs.size(), alone.logprobs.size());
      double largest = 0;
      const double mean = MeanDifference(found.logprobs, alone.logprobs, largest);
      EXPECT_LT(largest, wide ? 2e-5 : 0.5) << "sequence " << i;
      EXPECT_LT(mean, wide ? 5e-6 : 0.05) << "sequence " << i;
    }
  }
}

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
