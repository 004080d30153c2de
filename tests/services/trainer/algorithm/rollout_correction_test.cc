// Importance weights, rejection and their metrics against PyTorch.
#include "services/trainer/algorithm/rollout_correction.h"

#include <gtest/gtest.h>

#include "services/trainer/algorithm/off_policy_metrics.h"
#include "services/trainer/algorithm/rejection.h"
#include "tests/services/trainer/algorithm/batch_golden.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

class RolloutCorrection : public ::testing::Test {
 protected:
  void SetUp() override {
    const nlohmann::json all = ReadBatchGolden();
    golden_ = all["correction"];
    batch_ = GoldenBatch(all);
    SetTokens(batch_, &Sequence::old_logprobs, golden_["old"]);
    SetTokens(batch_, &Sequence::rollout_logprobs, golden_["rollout"]);
  }

  static void ExpectMetrics(const Metrics& actual, const nlohmann::json& expected,
                            const std::string& prefix) {
    for (const auto& [name, value] : expected.items()) {
      ASSERT_EQ(actual.count(prefix + name), 1u) << prefix + name;
      const double reference = value.get<double>();
      EXPECT_NEAR(actual.at(prefix + name), reference, 1e-7 * std::max(1.0, std::abs(reference)))
          << prefix + name;
    }
  }

  nlohmann::json golden_;
  TrainingBatch batch_;
};

TEST_F(RolloutCorrection, WeighsAsPyTorchAtEveryLevelAndBound) {
  for (const nlohmann::json& expected : golden_["weights"]) {
    SCOPED_TRACE(expected["level"].get<std::string>() + " " +
                 expected["threshold"].get<std::string>());
    ImportanceWeightOptions options;
    options.level = expected["level"] == "token" ? RolloutIs::kToken : RolloutIs::kSequence;
    options.batch_normalize = expected["normalize"];
    ASSERT_OK_AND_ASSIGN(options.bounds,
                         config::ParseWeightBounds(expected["threshold"].get<std::string>()));
    TrainingBatch batch = batch_;
    Metrics metrics;

    AssignImportanceWeights(batch, options, metrics);

    ExpectNear(AllTokens(batch, &Sequence::importance_weights), expected["weights"], 1e-6,
               "weights");
    ExpectMetrics(metrics, expected["metrics"], "rollout_corr/rollout_is_");
  }
}

TEST_F(RolloutCorrection, RejectsWhatPyTorchRejectsByEveryRule) {
  for (const nlohmann::json& expected : golden_["rejection"]) {
    SCOPED_TRACE(expected["rules"].get<std::string>());
    ASSERT_OK_AND_ASSIGN(const auto rules,
                         config::ParseRejectionRules(expected["rules"].get<std::string>(),
                                                     expected["thresholds"].get<std::string>()));
    TrainingBatch batch = batch_;
    Metrics metrics;

    RejectTokens(batch, rules, metrics);

    std::vector<double> kept;
    for (size_t i = 0; i < batch.sequences.size(); ++i) {
      const std::vector<int64_t>& left = batch.sequences[i].trained;
      for (int64_t position : batch_.sequences[i].trained) {
        kept.push_back(std::count(left.begin(), left.end(), position) > 0 ? 1 : 0);
      }
    }
    ExpectNear(kept, expected["keep"], 0, "kept");
    ExpectMetrics(metrics,
                  {{"masked_fraction", expected["masked_fraction"]},
                   {"seq_masked_fraction", expected["seq_masked_fraction"]}},
                  "rollout_corr/rollout_rs_");
  }
}

TEST_F(RolloutCorrection, ReportsTheMismatchAsPyTorch) {
  Metrics metrics;
  AddOffPolicyMetrics(batch_, metrics);
  ExpectMetrics(metrics, golden_["off_policy"], "rollout_corr/");
}

TEST_F(RolloutCorrection, ReportsNoMismatchWhereTheRolloutDidNotStateAProbability) {
  batch_.sequences[1].rollout_logprobs[0] = NAN;
  Metrics metrics;
  AddOffPolicyMetrics(batch_, metrics);
  EXPECT_TRUE(metrics.empty());
}

TEST_F(RolloutCorrection, MakesTheRatioOfTheRolloutsLogProbsWhenBypassing) {
  RolloutCorrectionOptions options;
  options.bypass = true;
  ASSERT_OK_AND_ASSIGN(options.rules, config::ParseRejectionRules("token_k2", "0.1"));
  Metrics metrics;

  CorrectRollout(batch_, options, metrics);

  EXPECT_GT(metrics["rollout_corr/rollout_rs_masked_fraction"], 0);
  for (const Sequence& sequence : batch_.sequences) {
    EXPECT_EQ(sequence.old_logprobs, sequence.rollout_logprobs);
    EXPECT_EQ(sequence.old_logprobs.size(), sequence.trained.size());
  }
}

}  // namespace
}  // namespace tandem::trainer
