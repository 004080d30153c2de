// The parts agree on what there is: each estimator of the configuration is one that the trainer
// computes, and the driver knows which of them compare the samples of a prompt.
#include <gtest/gtest.h>

#include "common/config/scalar.h"
#include "services/trainer/algorithm/advantages.h"
#include "tools/tandem/commands/run_checks.h"

namespace tandem {
namespace {

TEST(AdvantageEstimators, AreTheSameInConfigurationTrainerAndDriver) {
  const auto& type = *config::v1::AdvEstimator_descriptor();
  int num_comparing = 0;
  for (int i = 0; i < type.value_count(); ++i) {
    const auto estimator = static_cast<config::v1::AdvEstimator>(type.value(i)->number());
    const trainer::AdvantageKind* const kind = trainer::FindAdvantages(estimator);
    if (estimator == config::v1::ADV_ESTIMATOR_UNSPECIFIED) {
      EXPECT_EQ(kind, nullptr);
      continue;
    }
    const std::string name = config::EnumValueName(*type.value(i));
    ASSERT_NE(kind, nullptr) << name << ": list it in advantages.cc";
    EXPECT_EQ(kind->compares_samples, commands::ComparesSamples(estimator))
        << name << ": correct ComparesSamples() in run_checks.cc";
    num_comparing += kind->compares_samples ? 1 : 0;
  }
  EXPECT_GT(num_comparing, 0);
}

}  // namespace
}  // namespace tandem
