#include "tools/tandem/driver/held_out_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/status_matchers.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::StatusIs;
using trainer::v1::ComputeLogProbsRequest;
using trainer::v1::ComputeLogProbsResponse;

// A policy that gives token i the log-prob -i / 10, and a reference that gives each -1.
absl::StatusOr<ComputeLogProbsResponse> Score(const ComputeLogProbsRequest& request) {
  ComputeLogProbsResponse response;
  for (const auto& sequence : request.sequences()) {
    auto* scored = response.add_sequences();
    for (int i = 1; i < sequence.token_ids_size(); ++i) {
      scored->add_logprobs(request.reference() ? -1.0f
                                               : -0.1f * static_cast<float>(sequence.token_ids(i)));
    }
  }
  return response;
}

TEST(HeldOutLoss, IsTheMeanOverTheTrainedTokensOfAllRows) {
  std::vector<Prompt> rows(3);
  rows[0].given = {{{{9, 9}, false}, {{1, 2}, true}, {{9}, false}, {{3}, true}}};
  rows[1].given = {{{{9}, false}, {{6}, true}}};  // rows[2] gives nothing
  HeldOutLoss loss(config::v1::RunConfig(), rows, /*by_preference=*/false, Score);

  Metrics metrics;
  ASSERT_OK(loss.Measure(metrics));

  EXPECT_NEAR(metrics["val/loss"], (0.1 + 0.2 + 0.3 + 0.6) / 4, 1e-6);
}

TEST(HeldOutLoss, ComparesPairsWithTheReference) {
  config::v1::RunConfig config;
  config.mutable_dpo()->set_beta(0.5);
  std::vector<Prompt> rows(2);
  rows[0].given = {{{{9}, false}, {{2}, true}}, {{{9}, false}, {{8}, true}}};
  rows[1].given = {{{{9}, false}, {{8}, true}}, {{{9}, false}, {{2}, true}}};
  HeldOutLoss loss(config, rows, /*by_preference=*/true, Score);

  Metrics metrics;
  ASSERT_OK(loss.Measure(metrics));

  const double margin = 0.5 * 0.6;
  EXPECT_NEAR(metrics["val/loss"],
              (std::log1p(std::exp(-margin)) + std::log1p(std::exp(margin))) / 2, 1e-6);
  EXPECT_EQ(metrics["val/accuracy"], 0.5);
}

// Two trained tokens against one: sums and means prefer different completions.
TEST(HeldOutLoss, IsTheConfiguredLossOfPairs) {
  std::vector<Prompt> rows(1);
  rows[0].given = {{{{9}, false}, {{4, 4}, true}}, {{{9}, false}, {{5}, true}}};
  const double sums = (-0.8 + 2) - (-0.5 + 1);
  const double means = (-0.4 + 1) - (-0.5 + 1);
  const auto measure = [&](config::v1::DpoLossType type) {
    config::v1::RunConfig config;
    config.mutable_dpo()->set_beta(0.5);
    config.mutable_dpo()->set_label_smoothing(0.2);
    config.mutable_dpo()->set_loss_type(type);
    HeldOutLoss loss(config, rows, /*by_preference=*/true, Score);
    Metrics metrics;
    EXPECT_OK(loss.Measure(metrics));
    return metrics["val/loss"];
  };
  const auto log_sigmoid = [](double x) { return -std::log1p(std::exp(-x)); };
  const auto sigmoid = [&](double x) { return -0.8 * log_sigmoid(x) - 0.2 * log_sigmoid(-x); };

  EXPECT_NEAR(measure(config::v1::DPO_LOSS_TYPE_SIGMOID), sigmoid(0.5 * sums), 1e-6);
  EXPECT_NEAR(measure(config::v1::DPO_LOSS_TYPE_SIGMOID_NORM), sigmoid(0.5 * means), 1e-6);
  EXPECT_NEAR(measure(config::v1::DPO_LOSS_TYPE_IPO), (means - 1) * (means - 1), 1e-6);
  EXPECT_NEAR(measure(config::v1::DPO_LOSS_TYPE_HINGE), 1 - 0.5 * sums, 1e-6);
  EXPECT_NEAR(measure(config::v1::DPO_LOSS_TYPE_ROBUST),
              (-0.8 * log_sigmoid(0.5 * sums) + 0.2 * log_sigmoid(-0.5 * sums)) / 0.6, 1e-6);
}

TEST(HeldOutLoss, MeasuresAtMostTheLimitAndNothingWithoutRows) {
  config::v1::RunConfig config;
  config.mutable_data()->set_test_limit(1);
  std::vector<Prompt> rows(2);
  rows[0].given = {{{{9}, false}, {{1}, true}}};
  rows[1].given = {{{{9}, false}, {{5}, true}}};
  HeldOutLoss loss(config, rows, /*by_preference=*/false, Score);
  Metrics metrics;
  ASSERT_OK(loss.Measure(metrics));
  EXPECT_NEAR(metrics["val/loss"], 0.1, 1e-6);

  metrics.clear();
  HeldOutLoss none(config, {}, /*by_preference=*/false, Score);
  ASSERT_OK(none.Measure(metrics));
  EXPECT_TRUE(metrics.empty());
}

TEST(HeldOutLoss, RefusesLogProbsOfAnotherLength) {
  std::vector<Prompt> rows(1);
  rows[0].given = {{{{9}, false}, {{1}, true}}};
  HeldOutLoss loss(config::v1::RunConfig(), rows, /*by_preference=*/false,
                   [](const ComputeLogProbsRequest&) {
                     ComputeLogProbsResponse response;
                     response.add_sequences();
                     return absl::StatusOr<ComputeLogProbsResponse>(response);
                   });
  Metrics metrics;
  EXPECT_THAT(loss.Measure(metrics),
              StatusIs(absl::StatusCode::kInternal, ::testing::HasSubstr("log-probs")));
}

}  // namespace
}  // namespace tandem::driver
