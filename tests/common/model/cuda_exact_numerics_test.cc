// The comparisons of exact_numerics_test.cc on a GPU: packed with and without gradients, and
// through a paged cache in random steps.
#include "common/model/numerics.h"
#include "tests/common/model/exact_numerics.h"
#include "tests/support/cuda_device.h"

namespace tandem::model {
namespace {

std::vector<ExactCase> CudaCases() {
  std::vector<ExactCase> cases = {{kWideShape, at::kFloat, 1}, {kWideShape, at::kBFloat16, 1}};
  for (const std::vector<ExactShape>* shapes :
       {&ExactShapes(), &WindowedShapes(), &ExpertShapes(), &LinearShapes(), &LatentShapes(),
        &UnlikeShapes(), &SharedShapes()}) {
    for (const ExactCase& exact_case : ExactCases(*shapes)) {
      if (exact_case.threads == 1) cases.push_back(exact_case);
    }
  }
  for (ExactCase& exact_case : cases) {
    exact_case.device = at::Device(at::kCUDA, 0);
    exact_case.make_attention = &CreateCudaAttention;
  }
  return cases;
}

class CudaExactNumericsTest : public ::testing::TestWithParam<ExactCase> {
 protected:
  void SetUp() override {
    TANDEM_SKIP_WITHOUT_CUDA();
    SetNumerics(Numerics::kExact);
  }
  void TearDown() override { SetNumerics(Numerics::kFast); }
};

TEST_P(CudaExactNumericsTest, EveryWayThroughTheModelHasTheSameBits) {
  int compared = 0;
  for (uint64_t seed = 0; seed < 2; ++seed) {
    compared += CompareWays(GetParam(), seed);
    if (HasFailure()) return;
  }
  EXPECT_GE(compared, 2 * 4 * 3);
}

TEST_P(CudaExactNumericsTest, OfOneAndOfManyHaveTheSameBits) {
  ExactNumerics exact(GetParam(), 77);
  const auto sequences = exact.DrawSequences(80);
  const std::vector<TokenResults> together = exact.Paged(sequences, 16);
  for (size_t i = 0; i < sequences.size(); i += 9) {
    const std::vector<TokenResults> alone = exact.Paged({sequences[i]}, 16);
    EXPECT_TRUE(SameBits(together[i].logits, alone[0].logits)) << "sequence " << i;
    EXPECT_TRUE(SameBits(together[i].logprobs, alone[0].logprobs)) << "sequence " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaExactNumericsTest, ::testing::ValuesIn(CudaCases()),
                         ExactCaseName);

}  // namespace
}  // namespace tandem::model
