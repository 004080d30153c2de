#include "tools/tandem/driver/best_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/status_matchers.h"

namespace tandem::driver {
namespace {

using ::testing::ElementsAre;

// The steps whose model is saved, for values of a metric by step; NAN: the step lacks it.
std::vector<int64_t> SavedSteps(BestModel& best, const std::string& metric,
                                const std::vector<double>& values, int64_t first = 1) {
  std::vector<int64_t> saved;
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t step = first + static_cast<int64_t>(i);
    Metrics metrics = {{"other", 1}};
    if (!std::isnan(values[i])) metrics[metric] = values[i];
    EXPECT_OK(best.OnStep(step, metrics, [&] {
      saved.push_back(step);
      return absl::OkStatus();
    }));
  }
  return saved;
}

TEST(BestModel, SavesEachStepThatBeatsAllEarlierOnes) {
  BestModel rewards("val-core/x/reward/mean@1");
  EXPECT_THAT(SavedSteps(rewards, rewards.metric(), {NAN, 0.5, 0.4, 0.5, 0.6}), ElementsAre(2, 5));
  EXPECT_EQ(rewards.step(), 5);
  BestModel losses("val/loss");
  EXPECT_THAT(SavedSteps(losses, "val/loss", {0.5, 0.6, INFINITY, 0.4}), ElementsAre(1, 4));
  BestModel none("");
  EXPECT_THAT(SavedSteps(none, "", {0.5}), ElementsAre());
}

TEST(BestModel, ContinuesFromTheModelThatAResumedRunHas) {
  BestModel best("val/loss");
  best.ResumeFrom(BestStep{.step = 1, .metric = "val/loss", .value = 0.5});
  EXPECT_EQ(best.step(), 1);
  EXPECT_THAT(SavedSteps(best, "val/loss", {0.6, 0.4}, 3), ElementsAre(4));
}

TEST(BestModel, StartsAgainWhereTheResumedRunHasNoneOfItsMetric) {
  BestModel none("val/loss"), other("val/loss");
  none.ResumeFrom(std::nullopt);
  other.ResumeFrom(BestStep{.step = 1, .metric = "train/loss", .value = 0.1});
  EXPECT_EQ(other.step(), std::nullopt);
  EXPECT_THAT(SavedSteps(none, "val/loss", {0.6, 0.7}, 3), ElementsAre(3));
  EXPECT_THAT(SavedSteps(other, "val/loss", {0.6, 0.7}, 3), ElementsAre(3));
}

TEST(BestModel, CountsOnlyWhatWasSaved) {
  BestModel best("reward");
  const auto fails = [] { return absl::ResourceExhaustedError("disk full"); };
  EXPECT_FALSE(best.OnStep(1, {{"reward", 0.9}}, fails).ok());
  EXPECT_THAT(SavedSteps(best, "reward", {0.8}, 2), ElementsAre(2));
}

TEST(BestModel, TellsOnceOfAMetricThatAStepLacks) {
  BestModel best("critic/rewrds/mean");
  const Metrics metrics = {{"actor/lr", 1}, {"critic/rewards/mean", 0.5}};
  EXPECT_THAT(best.NoteMissing(1, metrics),
              ::testing::AllOf(::testing::HasSubstr("step 1 has no metric critic/rewrds/mean"),
                               ::testing::HasSubstr("did you mean 'critic/rewards/mean'?")));
  EXPECT_EQ(best.NoteMissing(2, metrics), "");

  EXPECT_EQ(BestModel("critic/rewards/mean").NoteMissing(1, metrics), "");
  EXPECT_EQ(BestModel("val/loss").NoteMissing(1, metrics), "");  // only some steps evaluate
  EXPECT_EQ(BestModel("").NoteMissing(1, metrics), "");
}

}  // namespace
}  // namespace tandem::driver
