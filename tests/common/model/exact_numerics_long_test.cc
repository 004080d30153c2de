// The comparisons of exact_numerics_test.cc over thousands of sequences.
#include "common/model/numerics.h"
#include "tests/common/model/exact_numerics.h"

namespace tandem::model {
namespace {

class ExactNumericsLongTest : public ::testing::TestWithParam<ExactCase> {
 protected:
  void SetUp() override { SetNumerics(Numerics::kExact); }
  void TearDown() override { SetNumerics(Numerics::kFast); }
};

TEST_P(ExactNumericsLongTest, EveryWayThroughTheModelHasTheSameBits) {
  int compared = 0;
  for (uint64_t seed = 1000; seed < 1040; ++seed) {
    compared += CompareWays(GetParam(), seed);
    if (HasFailure()) return;
  }
  EXPECT_GE(compared, 40 * 4 * 3);
  RecordProperty("sequences", compared);
}

INSTANTIATE_TEST_SUITE_P(Shapes, ExactNumericsLongTest, ::testing::ValuesIn(ExactCases()),
                         ExactCaseName);
INSTANTIATE_TEST_SUITE_P(Windows, ExactNumericsLongTest,
                         ::testing::ValuesIn(ExactCases(WindowedShapes())), ExactCaseName);
INSTANTIATE_TEST_SUITE_P(Experts, ExactNumericsLongTest,
                         ::testing::ValuesIn(ExactCases(ExpertShapes())), ExactCaseName);

}  // namespace
}  // namespace tandem::model
