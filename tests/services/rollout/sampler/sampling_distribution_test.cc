// A million draws for each kind of filter against the distribution that it should leave. Seeds are
// fixed, so a result is always the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "services/rollout/sampler/sampler.h"
#include "services/rollout/sampler/uniform.h"
#include "tests/services/rollout/sampler/reference_distribution.h"

namespace tandem::rollout {
namespace {

constexpr int64_t kDraws = 1000000;
constexpr int64_t kSamplesOfAGroup = 8;

// How often each id is drawn.
std::vector<int64_t> Count(const std::vector<float>& logits, const FilterParams& params,
                           uint64_t seed) {
  std::vector<int64_t> count(logits.size());
  constexpr int64_t kAtOnce = 50000;
  std::vector<SampleRow> rows(kAtOnce);
  std::vector<SampledToken> tokens(kAtOnce);
  for (int64_t begin = 0; begin < kDraws; begin += kAtOnce) {
    for (int64_t i = 0; i < kAtOnce; ++i) {
      const int64_t draw = begin + i;
      rows[i] = {0, params, Uniform(seed, draw % kSamplesOfAGroup, draw / kSamplesOfAGroup)};
    }
    Sample(logits.data(), static_cast<int64_t>(logits.size()), rows, absl::MakeSpan(tokens));
    for (const SampledToken& token : tokens) ++count[token.id];
  }
  return count;
}

struct ChiSquare {
  double value = 0;
  int degrees_of_freedom = -1;

  // What a thousandth of all draws from the distribution exceed (Wilson and Hilferty).
  double Limit() const {
    const double spread = 2.0 / (9.0 * degrees_of_freedom);
    return degrees_of_freedom * std::pow(1.0 - spread + 3.0902 * std::sqrt(spread), 3);
  }
};

// Ids that are expected less than ten times are taken together.
ChiSquare Compare(const std::vector<int64_t>& count, const std::vector<double>& p) {
  ChiSquare result;
  double rare_expected = 0, rare_count = 0;
  const auto add = [&](double seen, double expected) {
    result.value += (seen - expected) * (seen - expected) / expected;
    ++result.degrees_of_freedom;
  };
  for (size_t id = 0; id < p.size(); ++id) {
    const double expected = p[id] * static_cast<double>(kDraws);
    if (expected >= 10) {
      add(static_cast<double>(count[id]), expected);
    } else {
      rare_expected += expected;
      rare_count += static_cast<double>(count[id]);
    }
  }
  if (rare_expected >= 10) add(rare_count, rare_expected);
  return result;
}

struct Filter {
  const char* name;
  int64_t vocab;
  FilterParams params;
};

class SamplingDistributionTest : public ::testing::TestWithParam<Filter> {};

TEST_P(SamplingDistributionTest, AMillionDrawsAgreeByChiSquare) {
  const std::vector<float> logits = RandomLogits(GetParam().vocab, 2, 1.3f);
  const std::vector<double> p = Reference(logits, GetParam().params);
  const std::vector<int64_t> count = Count(logits, GetParam().params, 17);
  for (size_t id = 0; id < p.size(); ++id) {
    EXPECT_TRUE(p[id] > 0 || count[id] == 0) << "id " << id << " is filtered out";
  }
  const ChiSquare chi_square = Compare(count, p);
  EXPECT_GE(chi_square.degrees_of_freedom, 3);
  EXPECT_LT(chi_square.value, chi_square.Limit())
      << chi_square.degrees_of_freedom << " degrees of freedom";
}

INSTANTIATE_TEST_SUITE_P(
    Filters, SamplingDistributionTest,
    ::testing::Values(
        Filter{"none", 40, {}}, Filter{"several_blocks_of_sums", 600, {}},
        Filter{"cold", 40, {.temperature = 0.4}}, Filter{"hot", 40, {.temperature = 2.3}},
        Filter{"top_k", 40, {.top_k = 12}}, Filter{"top_p", 40, {.top_p = 0.8}},
        Filter{"min_p", 40, {.min_p = 0.1}},
        Filter{"temperature_top_k", 40, {.temperature = 0.7, .top_k = 15}},
        Filter{"temperature_top_p", 40, {.temperature = 1.5, .top_p = 0.9}},
        Filter{"temperature_min_p", 40, {.temperature = 1.4, .min_p = 0.05}},
        Filter{"top_k_top_p", 40, {.top_k = 20, .top_p = 0.85}},
        Filter{"top_k_min_p", 40, {.top_k = 25, .min_p = 0.08}},
        Filter{"top_p_min_p", 40, {.top_p = 0.95, .min_p = 0.04}},
        Filter{"all", 40, {.temperature = 0.8, .top_k = 18, .top_p = 0.92, .min_p = 0.03}},
        Filter{"all_of_many", 520, {.temperature = 1.2, .top_k = 90, .top_p = 0.9, .min_p = 0.01}}),
    [](const auto& info) { return info.param.name; });

TEST(SamplingDistributionTest, ADistributionThatIsAPercentOffIsSeen) {
  const std::vector<float> logits = RandomLogits(40, 2, 1.3f);
  const std::vector<int64_t> count = Count(logits, {.temperature = 1.01}, 17);
  const ChiSquare chi_square = Compare(count, Reference(logits, {}));
  EXPECT_GT(chi_square.value, chi_square.Limit());
}

TEST(SamplingDistributionTest, SamplesOfAGroupAreIndependent) {
  // Pairs of neighbouring samples at the same position, over a distribution of four equal ids.
  const std::vector<float> logits(4, 0.0f);
  std::vector<int64_t> pairs(16);
  constexpr int64_t kPositions = kDraws / kSamplesOfAGroup;
  for (int64_t position = 0; position < kPositions; ++position) {
    std::vector<SampleRow> rows;
    for (int64_t i = 0; i < kSamplesOfAGroup; ++i) rows.push_back({0, {}, Uniform(5, i, position)});
    std::vector<SampledToken> tokens(rows.size());
    Sample(logits.data(), 4, rows, absl::MakeSpan(tokens));
    for (int64_t i = 0; i < kSamplesOfAGroup; i += 2) ++pairs[tokens[i].id * 4 + tokens[i + 1].id];
  }
  double chi_square = 0;
  const double expected = static_cast<double>(kDraws) / 2 / 16;
  for (const int64_t count : pairs) {
    chi_square += (static_cast<double>(count) - expected) *
                  (static_cast<double>(count) - expected) / expected;
  }
  EXPECT_LT(chi_square, (ChiSquare{0, 15}.Limit()));
}

}  // namespace
}  // namespace tandem::rollout
