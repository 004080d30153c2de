// The sampler on a GPU, against the CPU's: the same token for the same logits and uniform.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "services/rollout/sampler/device_sampler.h"
#include "services/rollout/sampler/uniform.h"
#include "tests/services/rollout/sampler/reference_distribution.h"
#include "tests/support/cuda_device.h"

namespace tandem::rollout {
namespace {

class CudaSampler : public ::testing::Test {
 protected:
  void SetUp() override { TANDEM_SKIP_WITHOUT_CUDA(); }

  // Draws on both and returns how many tokens differ.
  int Differences(const at::Tensor& logits, const std::vector<SampleRow>& rows) {
    std::vector<SampledToken> expected(rows.size()), found(rows.size());
    Sample(logits, rows, absl::MakeSpan(expected));
    EXPECT_TRUE(SampleOnDevice(logits.to(at::Device(at::kCUDA, 0)), rows, absl::MakeSpan(found)));
    int differences = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (found[i].id != expected[i].id) {
        ++differences;
        continue;
      }
      EXPECT_NEAR(found[i].logprob, expected[i].logprob, 2e-5);
      EXPECT_NEAR(found[i].processed_logprob, expected[i].processed_logprob, 2e-5);
    }
    return differences;
  }
};

TEST_F(CudaSampler, DrawsTheCpusTokens) {
  int drawn = 0, differences = 0;
  for (const int64_t vocab : {1, 7, 513, 5000, 152064}) {
    std::vector<at::Tensor> lines;
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      const std::vector<float> logits = RandomLogits(vocab, seed);
      lines.push_back(at::tensor(at::ArrayRef<float>(logits)));
    }
    std::vector<SampleRow> rows;
    for (const double temperature : {0.0, 1.0, 0.5, 2.5}) {
      for (const int64_t top_k : {0, 1, 50, 600}) {
        for (const double top_p : {1.0, 0.9, 0.3}) {
          for (const double min_p : {0.0, 0.05}) {
            for (int64_t row = 0; row < 3; ++row) {
              const auto n = static_cast<int64_t>(rows.size());
              rows.push_back({row, {temperature, top_k, top_p, min_p}, Uniform(7, row, n)});
            }
          }
        }
      }
    }
    drawn += static_cast<int>(rows.size());
    differences += Differences(at::stack(lines), rows);
  }
  // A uniform may lie within the last bits of the edge between two tokens; seldom.
  EXPECT_LE(differences, drawn / 500);
}

TEST_F(CudaSampler, BreaksTiesById) {
  at::Tensor logits = at::zeros({1, 3000});
  logits.narrow(1, 1000, 1500).fill_(2.0);
  std::vector<SampleRow> rows;
  for (int i = 0; i < 64; ++i) {
    const double uniform = (i + 0.5) / 64;
    rows.push_back({0, {.temperature = 0.0}, uniform});
    rows.push_back({0, {.top_k = 20}, uniform});
    rows.push_back({0, {.top_k = 1600}, uniform});
    rows.push_back({0, {.top_p = 0.25}, uniform});
    rows.push_back({0, {.min_p = 0.9}, uniform});
  }
  EXPECT_EQ(Differences(logits, rows), 0);
}

TEST_F(CudaSampler, TakesExtremeParameters) {
  const std::vector<float> values = RandomLogits(1000, 7, 30.0f);
  const at::Tensor logits = at::tensor(at::ArrayRef<float>(values)).unsqueeze(0);
  std::vector<SampleRow> rows;
  for (const double uniform : {0.0, 0.5, std::nextafter(1.0, 0.0)}) {
    rows.push_back({0, {.temperature = 1e-300}, uniform});
    rows.push_back({0, {.temperature = 1e300}, uniform});
    rows.push_back({0, {.top_p = 1e-300}, uniform});
    rows.push_back({0, {.min_p = 1.0}, uniform});
  }
  EXPECT_EQ(Differences(logits, rows), 0);
}

TEST_F(CudaSampler, SaysWhichRowsAreNotFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  at::Tensor logits = at::zeros({4, 100});
  logits[0][5] = NAN;
  logits[1][7] = inf;
  logits[2].fill_(-inf);
  logits[3].fill_(-inf);
  logits[3][42] = -3.0;
  std::vector<SampleRow> rows;
  for (int64_t row = 0; row < 4; ++row) rows.push_back({row, {}, 0.3});
  EXPECT_EQ(Differences(logits, rows), 0);
  std::vector<SampledToken> found(rows.size());
  SampleOnDevice(logits.to(at::Device(at::kCUDA, 0)), rows, absl::MakeSpan(found));
  EXPECT_EQ(found[0].id, -1);
  EXPECT_EQ(found[1].id, -1);
  EXPECT_EQ(found[2].id, -1);
  EXPECT_EQ(found[3].id, 42);
}

// Those with penalties come from the CPU, and the others do not notice.
// Each of the few tokens is drawn by many rows, so that forbidden ones come up among others.
TEST_F(CudaSampler, ForbiddenTokensAreNotDrawnAndTheOthersAreTheCpus) {
  const std::vector<float> row = RandomLogits(9, 1);
  const at::Tensor logits = at::tensor(at::ArrayRef<float>(row)).view({1, 9});
  const std::vector<int32_t> forbidden = {2, 5};
  std::vector<SampleRow> rows;
  for (int64_t i = 0; i < 300; ++i) {
    SampleRow request{0, {i % 3 == 0 ? 0.7 : 1.0}, Uniform(3, 0, i)};
    if (i % 2 == 0) request.forbidden = forbidden;
    rows.push_back(request);
  }
  std::vector<SampledToken> expected(rows.size()), found(rows.size());
  Sample(logits, rows, absl::MakeSpan(expected));
  Sample(logits.to(at::Device(at::kCUDA, 0)), rows, absl::MakeSpan(found));
  int drawn_elsewhere = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(found[i].id, expected[i].id) << i;
    EXPECT_NEAR(found[i].logprob, expected[i].logprob, 2e-5) << i;
    const bool is_one = found[i].id == 2 || found[i].id == 5;
    if (rows[i].forbidden.empty()) {
      drawn_elsewhere += is_one ? 1 : 0;
    } else {
      EXPECT_FALSE(is_one) << i;
    }
  }
  EXPECT_GT(drawn_elsewhere, 0);
}

TEST_F(CudaSampler, TokensWithPenaltiesAreTheCpus) {
  const std::vector<float> values = RandomLogits(3 * 5000, 1);
  const at::Tensor here = at::tensor(at::ArrayRef<float>(values)).view({3, 5000});
  const at::Tensor there = here.to(at::Device(at::kCUDA, 0));
  LogitAdjustments adjustments(std::make_shared<const AdjustmentBase>(
      PenaltyParams{.logit_bias = {{17, 4.0f}}, .presence = 1.0}, std::vector<int32_t>{}));
  adjustments.Count(3);
  const std::vector<SampleRow> plain = {{0, {}, 0.4}, {2, {.temperature = 0.5}, 0.7}};
  const std::vector<SampleRow> mixed = {
      {1, {}, 0.2, &adjustments}, plain[0], plain[1], {2, {}, 0.3, &adjustments}};
  std::vector<SampledToken> alone(2), found(4), expected(4);
  Sample(there, plain, absl::MakeSpan(alone));
  Sample(there, mixed, absl::MakeSpan(found));
  Sample(here, mixed, absl::MakeSpan(expected));
  for (const int i : {0, 3}) {
    EXPECT_EQ(found[i].id, expected[i].id);
    EXPECT_EQ(found[i].logprob, expected[i].logprob);
    EXPECT_EQ(found[i].processed_logprob, expected[i].processed_logprob);
  }
  for (const int i : {0, 1}) {
    EXPECT_EQ(found[i + 1].id, alone[i].id);
    EXPECT_EQ(found[i + 1].logprob, alone[i].logprob);
  }
}

}  // namespace
}  // namespace tandem::rollout
