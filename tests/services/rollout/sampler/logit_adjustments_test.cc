#include "services/rollout/sampler/logit_adjustments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "services/rollout/sampler/top_logprobs.h"
#include "tests/services/rollout/sampler/reference_distribution.h"

namespace tandem::rollout {
namespace {

constexpr int64_t kVocabulary = 900;

LogitAdjustments Make(const PenaltyParams& params, const std::vector<int32_t>& prompt,
                      const std::vector<int32_t>& completion) {
  LogitAdjustments out(std::make_shared<const AdjustmentBase>(params, prompt));
  for (const int32_t id : completion) out.Count(id);
  return out;
}

// As OpenAI and vLLM define them, token by token.
float Reference(float logit, int32_t id, const PenaltyParams& params,
                const std::vector<int32_t>& prompt, const std::vector<int32_t>& completion) {
  for (const auto& [biased, bias] : params.logit_bias) {
    if (biased == id) logit += bias;
  }
  const auto count = std::count(completion.begin(), completion.end(), id);
  const bool seen = count > 0 || std::count(prompt.begin(), prompt.end(), id) > 0;
  const auto repetition = static_cast<float>(params.repetition);
  if (seen) logit = logit > 0 ? logit / repetition : logit * repetition;
  logit -= static_cast<float>(params.frequency) * static_cast<float>(count);
  if (count > 0) logit -= static_cast<float>(params.presence);
  return logit;
}

TEST(LogitAdjustments, AreThoseOfTheDefinitionBitForBit) {
  const std::vector<int32_t> prompt = {3, 5, 5, 899, 12}, completion = {5, 7, 7, 7, 800};
  std::vector<PenaltyParams> all(6);
  all[0].presence = 1.3;
  all[1].frequency = -0.7;
  all[2].repetition = 1.2;
  all[3].repetition = 0.8;
  all[4].logit_bias = {{7, -100.0f}, {6, 3.5f}, {899, 1.0f}};
  all[5] = {{{7, 2.5f}, {13, -1.0f}}, 1.7, 0.3, -1.1};
  for (const PenaltyParams& params : all) {
    const std::vector<float> logits = RandomLogits(kVocabulary, 4);
    std::vector<float> adjusted = logits;
    Make(params, prompt, completion).Apply(adjusted.data(), kVocabulary);
    for (int32_t id = 0; id < kVocabulary; ++id) {
      ASSERT_EQ(adjusted[id], Reference(logits[id], id, params, prompt, completion)) << id;
    }
  }
}

TEST(LogitAdjustments, DrawFromTheAdjustedLogitsAndKeepTheRawLogProb) {
  const PenaltyParams params{{{7, 2.5f}, {13, -1.0f}}, 1.7, 0.3, -1.1};
  const LogitAdjustments adjustments = Make(params, {3, 5}, {5, 7});
  const std::vector<float> logits = RandomLogits(kVocabulary, 9, 1.0f);
  std::vector<float> adjusted = logits;
  adjustments.Apply(adjusted.data(), kVocabulary);
  for (const double temperature : {0.0, 1.0, 0.6}) {
    for (const double uniform : {0.1, 0.5, 0.9}) {
      const FilterParams filter{.temperature = temperature, .top_k = 50, .top_p = 0.9};
      const SampleRow plain{0, filter, uniform}, changed{0, filter, uniform, &adjustments};
      SampledToken expected, token;
      Sample(adjusted.data(), kVocabulary, {&plain, 1}, {&expected, 1});
      Sample(logits.data(), kVocabulary, {&changed, 1}, {&token, 1});

      EXPECT_EQ(token.id, expected.id);
      EXPECT_EQ(token.processed_logprob, expected.processed_logprob);
      double sum = 0.0;
      for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
      EXPECT_NEAR(token.logprob, logits[token.id] - std::log(sum), 1e-5);
      EXPECT_NE(token.logprob, token.processed_logprob);
    }
  }
}

TEST(LogitAdjustments, LeaveOtherRowsAsTheyAre) {
  const LogitAdjustments adjustments = Make({.presence = 2.0}, {}, {1, 2, 3});
  std::vector<float> logits = RandomLogits(2 * kVocabulary, 11);
  std::vector<SampleRow> rows = {{0, {}, 0.3}, {1, {.temperature = 0.7}, 0.6}};
  std::vector<SampledToken> alone(2), together(4);
  Sample(logits.data(), kVocabulary, rows, absl::MakeSpan(alone));
  rows = {{0, {}, 0.3, &adjustments}, rows[0], rows[1], {1, {}, 0.9, &adjustments}};
  Sample(logits.data(), kVocabulary, rows, absl::MakeSpan(together));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(together[i + 1].id, alone[i].id);
    EXPECT_EQ(together[i + 1].logprob, alone[i].logprob);
    EXPECT_EQ(together[i + 1].processed_logprob, alone[i].processed_logprob);
  }
}

TEST(LogitAdjustments, ARowThatIsNotFiniteHasNoToken) {
  const LogitAdjustments adjustments = Make({.logit_bias = {{1, 5.0f}}}, {}, {});
  std::vector<float> logits(kVocabulary, 0.0f);
  logits[3] = std::numeric_limits<float>::quiet_NaN();
  const SampleRow row{0, {}, 0.5, &adjustments};
  SampledToken token;
  Sample(logits.data(), kVocabulary, {&row, 1}, {&token, 1});
  EXPECT_EQ(token.id, -1);
}

TEST(RankOf, CountsTheTokensThatRankBefore) {
  const std::vector<float> logits = {1.0f, 3.0f, 2.0f, 3.0f, -1.0f};
  const std::vector<int64_t> expected = {4, 1, 3, 2, 5};
  for (int32_t id = 0; id < 5; ++id) EXPECT_EQ(RankOf(logits.data(), 5, id), expected[id]) << id;
}

}  // namespace
}  // namespace tandem::rollout
