#include "tools/tandem/driver/skipped_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tests/support/status_matchers.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::map<std::string, double> kGood = {{"actor/skipped_updates", 0}};
const std::map<std::string, double> kSkipped = {
    {"actor/skipped_updates", 2}, {"actor/grad_norm", std::numeric_limits<double>::infinity()}};

class SkippedStepsTest : public ::testing::Test {
 protected:
  std::vector<std::string> notes_;
  std::function<void(const std::string&)> note_ = [this](const std::string& line) {
    notes_.push_back(line);
  };
};

TEST_F(SkippedStepsTest, StepsInARowThatTrainNothingEndTheRun) {
  SkippedSteps skipped(3, note_);
  EXPECT_OK(skipped.OnStep(1, 1, kGood));
  EXPECT_OK(skipped.OnStep(2, 1, kSkipped));
  EXPECT_OK(skipped.OnStep(3, 1, kSkipped));
  EXPECT_THAT(skipped.OnStep(4, 1, kSkipped), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                       HasSubstr("steps 2 to 4 trained nothing")));
  ASSERT_EQ(notes_.size(), 3u);
  EXPECT_THAT(notes_[0], HasSubstr("step 2 trained nothing: 2 updates were skipped"));
}

TEST_F(SkippedStepsTest, AStepThatTrainsBeginsTheCountAgain) {
  SkippedSteps skipped(2, note_);
  EXPECT_OK(skipped.OnStep(1, 1, kGood));
  for (int64_t step = 2; step < 20; step += 2) {
    EXPECT_OK(skipped.OnStep(step, step - 1, kSkipped));
    EXPECT_OK(skipped.OnStep(step + 1, step + 1, kSkipped));  // one update of several
  }
}

TEST_F(SkippedStepsTest, AStepInWhichTheCriticAloneLearnsIsNone) {
  SkippedSteps skipped(1, note_);
  for (int64_t step = 1; step < 5; ++step) EXPECT_OK(skipped.OnStep(step, 0, kGood));
  EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(SkippedStepsTest, WithoutALimitTheRunGoesOnAndSaysSo) {
  SkippedSteps skipped(0, note_);
  for (int64_t step = 1; step < 30; ++step) EXPECT_OK(skipped.OnStep(step, 0, kSkipped));
  EXPECT_EQ(notes_.size(), 28u);
}

}  // namespace
}  // namespace tandem::driver
