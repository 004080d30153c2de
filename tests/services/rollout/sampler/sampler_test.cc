#include "services/rollout/sampler/sampler.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "services/rollout/sampler/uniform.h"
#include "tests/services/rollout/sampler/reference_distribution.h"

namespace tandem::rollout {
namespace {

SampledToken SampleOne(const std::vector<float>& logits, const FilterParams& params,
                       double uniform) {
  const SampleRow row{0, params, uniform};
  SampledToken token;
  Sample(logits.data(), static_cast<int64_t>(logits.size()), {&row, 1}, {&token, 1});
  return token;
}

// The sampler walks the ids in order, so uniforms in the middle of each token's share hit it.
void ExpectSameDistribution(const std::vector<float>& logits, const FilterParams& params) {
  const std::vector<double> p = Reference(logits, params);
  double before = 0.0;
  for (size_t id = 0; id < p.size(); ++id) {
    if (p[id] > 1e-5) {
      EXPECT_EQ(SampleOne(logits, params, before + p[id] / 2).id, static_cast<int32_t>(id))
          << "temperature " << params.temperature << " top_k " << params.top_k << " top_p "
          << params.top_p << " min_p " << params.min_p << " vocabulary " << logits.size();
    }
    before += p[id];
  }
}

TEST(SamplerTest, DrawsFromTheDistributionThatTheFiltersLeave) {
  for (const int64_t size : {1, 7, 100, 513, 1500}) {
    const std::vector<float> logits = RandomLogits(size, 1);
    for (const double temperature : {1.0, 0.5, 2.5}) {
      for (const int64_t top_k : {0, 1, 5, 50, 600}) {
        for (const double top_p : {1.0, 0.9, 0.3}) {
          for (const double min_p : {0.0, 0.05}) {
            ExpectSameDistribution(logits, {temperature, top_k, top_p, min_p});
          }
        }
      }
    }
  }
}

TEST(SamplerTest, AnswersRawAndProcessedLogProbs) {
  const std::vector<float> logits = RandomLogits(3000, 3);
  const SampledToken token = SampleOne(logits, {.temperature = 0.6, .top_k = 20}, 0.4);
  const auto log_softmax = [&](double temperature) {
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(logit / temperature);
    return logits[token.id] / temperature - std::log(sum);
  };
  EXPECT_NEAR(token.logprob, log_softmax(1.0), 1e-5);
  EXPECT_NEAR(token.processed_logprob, log_softmax(0.6), 1e-5);
}

TEST(SamplerTest, GreedyTakesTheLowestIdAmongEquals) {
  std::vector<float> logits = RandomLogits(1000, 4);
  logits[700] = logits[313] = logits[999] = 50.0f;
  const SampledToken token = SampleOne(logits, {.temperature = 0.0}, 0.99);
  EXPECT_EQ(token.id, 313);
  EXPECT_NEAR(token.logprob, std::log(1.0 / 3.0), 1e-5);
  EXPECT_EQ(token.processed_logprob, token.logprob);
}

TEST(SamplerTest, TopKKeepsTheLowestIdsAmongEquals) {
  const std::vector<float> logits(400, 1.0f);
  EXPECT_EQ(SampleOne(logits, {.top_k = 3}, 0.999).id, 2);
  EXPECT_EQ(SampleOne(logits, {.top_p = 0.5}, 0.999).id, 199);
}

TEST(SamplerTest, AResultDependsOnItsRowAlone) {
  constexpr int64_t kVocab = 777;
  std::vector<float> logits = RandomLogits(kVocab * 16, 5);
  std::vector<SampleRow> rows;
  for (int64_t i = 0; i < 16; ++i) {
    rows.push_back({i,
                    {.temperature = 0.5 + 0.1 * i, .top_k = i * 3, .top_p = 1.0 - 0.03 * i},
                    Uniform(9, 0, i)});
  }
  std::vector<SampledToken> together(16), alone(16);
  Sample(logits.data(), kVocab, rows, absl::MakeSpan(together));
  for (int64_t i = 0; i < 16; ++i) {
    const SampleRow row{0, rows[i].params, rows[i].uniform};
    Sample(logits.data() + i * kVocab, kVocab, {&row, 1}, {&alone[i], 1});
    EXPECT_EQ(together[i].id, alone[i].id);
    EXPECT_EQ(together[i].logprob, alone[i].logprob);
    EXPECT_EQ(together[i].processed_logprob, alone[i].processed_logprob);
  }
}

TEST(SamplerTest, ForbiddenIdsLeaveTheOthersTheirShares) {
  const std::vector<float> logits = RandomLogits(9, 5);
  const std::vector<int32_t> forbidden = {2, 7};
  for (const FilterParams& params : {FilterParams{}, FilterParams{.temperature = 0.7, .top_k = 5},
                                     FilterParams{.temperature = 1.3, .top_p = 0.9}}) {
    // What the filters leave of the allowed ids, or if they leave none, of these alone.
    constexpr int kDraws = 40'000;
    std::vector<double> share(logits.size());
    for (int i = 0; i < kDraws; ++i) {
      SampleRow row{0, params, (i + 0.5) / kDraws + 1e-9};
      row.forbidden = forbidden;
      SampledToken token;
      Sample(logits.data(), static_cast<int64_t>(logits.size()), {&row, 1}, {&token, 1});
      share[static_cast<size_t>(token.id)] += 1.0 / kDraws;
      // Of all tokens.
      const SampledToken same = [&] {
        double before = 0;
        const std::vector<double> p =
            Reference(logits, FilterParams{.temperature = params.temperature});
        for (int32_t id = 0; id < token.id; ++id) before += p[static_cast<size_t>(id)];
        return SampleOne(logits, {.temperature = params.temperature},
                         before + p[static_cast<size_t>(token.id)] / 2);
      }();
      ASSERT_EQ(same.id, token.id);
      ASSERT_EQ(token.logprob, same.logprob);
      ASSERT_EQ(token.processed_logprob, same.processed_logprob);
    }
    const std::vector<double> all = Reference(logits, params);
    std::vector<float> allowed = logits;
    for (const int32_t id : forbidden) allowed[static_cast<size_t>(id)] = -1e4F;
    const std::vector<double> rest = Reference(allowed, params);
    const double lost = all[2] + all[7];
    for (size_t id = 0; id < logits.size(); ++id) {
      const bool is_forbidden = id == 2 || id == 7;
      const double expected = is_forbidden ? 0 : all[id] + lost * rest[id];
      EXPECT_NEAR(share[id], expected, 0.01) << id;
    }
  }
}

TEST(SamplerTest, GreedyTakesTheLikeliestThatIsNotForbidden) {
  const std::vector<float> logits = {0, 3, 5, 4};
  const std::vector<int32_t> forbidden = {2};
  SampleRow row{0, {.temperature = 0}, 0.3};
  row.forbidden = forbidden;
  SampledToken token;
  Sample(logits.data(), 4, {&row, 1}, {&token, 1});
  EXPECT_EQ(token.id, 3);
}

TEST(SamplerTest, MaskedLogitsAreNeverDrawn) {
  std::vector<float> logits(64, -std::numeric_limits<float>::infinity());
  logits[40] = 1.0f;
  logits[63] = 1.0f;
  EXPECT_EQ(SampleOne(logits, {}, 0.0).id, 40);
  EXPECT_EQ(SampleOne(logits, {}, 0.9999999).id, 63);
  EXPECT_EQ(SampleOne(logits, {.top_p = 0.4}, 0.9).id, 40);
}

TEST(SamplerTest, LogitsThatAreNotFiniteGiveNoToken) {
  for (const int place : {0, 31, 99}) {
    std::vector<float> logits = RandomLogits(100, 6);
    logits[place] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(SampleOne(logits, {}, 0.5).id, -1) << place;
    logits[place] = std::numeric_limits<float>::infinity();
    EXPECT_EQ(SampleOne(logits, {.temperature = 0.0}, 0.5).id, -1) << place;
  }
}

TEST(SamplerTest, ExtremeParametersStayWithinTheVocabulary) {
  const std::vector<float> logits = RandomLogits(1000, 7, 30.0f);
  const int32_t best = SampleOne(logits, {.temperature = 0.0}, 0.0).id;
  for (const double uniform : {0.0, 0.5, std::nextafter(1.0, 0.0)}) {
    EXPECT_EQ(SampleOne(logits, {.temperature = 1e-300}, uniform).id, best);
    EXPECT_EQ(SampleOne(logits, {.top_p = 1e-300}, uniform).id, best);
    EXPECT_EQ(SampleOne(logits, {.min_p = 1.0}, uniform).id, best);
    const int32_t any = SampleOne(logits, {.temperature = 1e300}, uniform).id;
    EXPECT_GE(any, 0);
    EXPECT_LT(any, 1000);
  }
}

TEST(UniformTest, DiffersBySeedSampleAndPosition) {
  EXPECT_EQ(Uniform(1, 2, 3), Uniform(1, 2, 3));
  EXPECT_NE(Uniform(1, 2, 3), Uniform(2, 2, 3));
  EXPECT_NE(Uniform(1, 2, 3), Uniform(1, 3, 2));
  EXPECT_NE(Uniform(1, 0, 1), Uniform(1, 1, 0));
  double sum = 0.0;
  for (int i = 0; i < 10000; ++i) sum += Uniform(42, i % 10, i / 10);
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
}

}  // namespace
}  // namespace tandem::rollout
