// The comparisons of exact_numerics_test.cc through the kernels of a GPU, which run on a CPU
// (emulated_gpu/model.cc): packed with and without gradients, and through a paged cache in random
// steps. What tensor cores make of a product is not shown.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "common/model/device_row_ops.h"
#include "common/model/numerics.h"
#include "tests/common/model/emulated_attention.h"
#include "tests/common/model/exact_numerics.h"

namespace tandem::model {
namespace {

// Types in turns.
std::vector<ExactCase> EmulatedCases() {
  std::vector<ExactCase> cases = {{kWideShape, at::kFloat, 1}, {kWideShape, at::kBFloat16, 1}};
  std::vector<ExactShape> shapes = ExactShapes();
  for (const auto* more : {&WindowedShapes(), &ExpertShapes(), &LinearShapes()}) {
    shapes.insert(shapes.end(), more->begin(), more->end());
  }
  shapes.insert(shapes.end(), {LatentShapes()[0], LatentShapes()[1], UnlikeShapes()[0],
                               UnlikeShapes()[2], SharedShapes()[0], SharedShapes()[2]});
  for (const ExactShape& shape : shapes) {
    cases.push_back({shape, cases.size() % 2 == 0 ? at::kFloat : at::kBFloat16, 1});
  }
  for (ExactCase& exact_case : cases) {
    exact_case.make_attention = &MakeEmulated;
    exact_case.longest = 40;
  }
  return cases;
}

class EmulatedExactNumericsTest : public ::testing::TestWithParam<ExactCase> {
 protected:
  void SetUp() override {
    SetNumerics(Numerics::kExact);
    // A block's threads share one thread of the CPU.
    at::set_num_threads(1);
    ASSERT_TRUE(device::ProductsTake({at::zeros({1, 1})}));
  }
  void TearDown() override { SetNumerics(Numerics::kFast); }
};

TEST_P(EmulatedExactNumericsTest, EveryWayThroughTheModelHasTheSameBits) {
  EXPECT_GE(CompareWays(GetParam(), 0), 4 * 3);
}

INSTANTIATE_TEST_SUITE_P(Shapes, EmulatedExactNumericsTest, ::testing::ValuesIn(EmulatedCases()),
                         ExactCaseName);

}  // namespace
}  // namespace tandem::model
