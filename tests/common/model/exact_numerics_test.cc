// A token's log-prob is the same bits in the trainer's forward pass and in the rollout's, whatever
// shares the batch.
#include "tests/common/model/exact_numerics.h"

#include "common/model/linear.h"
#include "common/model/numerics.h"

namespace tandem::model {
namespace {

class ExactNumericsTest : public ::testing::TestWithParam<ExactCase> {
 protected:
  void SetUp() override { SetNumerics(Numerics::kExact); }
  void TearDown() override { SetNumerics(Numerics::kFast); }
};

TEST_P(ExactNumericsTest, EveryWayThroughTheModelHasTheSameBits) {
  int compared = 0;
  for (uint64_t seed = 0; seed < 2; ++seed) {
    compared += CompareWays(GetParam(), seed);
    if (HasFailure()) return;
  }
  EXPECT_GE(compared, 2 * 4 * 3);
}

INSTANTIATE_TEST_SUITE_P(Shapes, ExactNumericsTest, ::testing::ValuesIn(ExactCases()),
                         ExactCaseName);
INSTANTIATE_TEST_SUITE_P(Windows, ExactNumericsTest,
                         ::testing::ValuesIn(ExactCases(WindowedShapes())), ExactCaseName);
INSTANTIATE_TEST_SUITE_P(Experts, ExactNumericsTest,
                         ::testing::ValuesIn(ExactCases(ExpertShapes())), ExactCaseName);
INSTANTIATE_TEST_SUITE_P(Latents, ExactNumericsTest,
                         ::testing::ValuesIn(ExactCases(LatentShapes())), ExactCaseName);
INSTANTIATE_TEST_SUITE_P(Unlike, ExactNumericsTest, ::testing::ValuesIn(ExactCases(UnlikeShapes())),
                         ExactCaseName);
INSTANTIATE_TEST_SUITE_P(Linear, ExactNumericsTest, ::testing::ValuesIn(ExactCases(LinearShapes())),
                         ExactCaseName);
INSTANTIATE_TEST_SUITE_P(Layers, ExactNumericsTest, ::testing::ValuesIn(ExactCases(VariedShapes())),
                         ExactCaseName);
INSTANTIATE_TEST_SUITE_P(Shared, ExactNumericsTest, ::testing::ValuesIn(ExactCases(SharedShapes())),
                         ExactCaseName);

using ExactBatchTest = ExactNumericsTest;

TEST_P(ExactBatchTest, OfOneAndOfManyHaveTheSameBits) {
  at::set_num_threads(GetParam().threads);
  ExactNumerics exact(GetParam(), 77);
  const auto sequences = exact.DrawSequences(64);
  const std::vector<TokenResults> together = exact.Paged(sequences, 16);
  for (size_t i = 0; i < sequences.size(); i += 9) {
    const std::vector<TokenResults> alone = exact.Paged({sequences[i]}, 16);
    EXPECT_TRUE(SameBits(together[i].logits, alone[0].logits)) << "sequence " << i;
    EXPECT_TRUE(SameBits(together[i].logprobs, alone[0].logprobs)) << "sequence " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ExactBatchTest,
                         ::testing::Values(ExactCase{ExactShapes()[1], at::kFloat, 2},
                                           ExactCase{ExactShapes()[1], at::kBFloat16, 1},
                                           ExactCase{ExactShapes()[3], at::kBFloat16, 2},
                                           ExactCase{LatentShapes()[1], at::kBFloat16, 2},
                                           ExactCase{LinearShapes()[0], at::kBFloat16, 2},
                                           ExactCase{ExpertShapes()[0], at::kFloat, 2},
                                           ExactCase{ExpertShapes()[1], at::kBFloat16, 2}),
                         ExactCaseName);

}  // namespace
}  // namespace tandem::model
