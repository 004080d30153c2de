// The comparisons of kernels, on a CPU, where they compare the CPU's kernels with ATen.
#include "tools/tandem/gpu_check/kernels/comparison.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/status_matchers.h"
#include "tools/tandem/gpu_check/device/device_rates.h"

namespace tandem::gpu_check {
namespace {

class EveryComparison : public ::testing::TestWithParam<size_t> {};

TEST_P(EveryComparison, PassesOnACpu) {
  const nlohmann::json result = RunComparison(AllComparisons()[GetParam()], at::kCPU, true);

  EXPECT_TRUE(result["passed"]) << result;
  EXPECT_GT(result["cases"], 0) << result;
}

INSTANTIATE_TEST_SUITE_P(All, EveryComparison,
                         ::testing::Range(size_t{0}, AllComparisons().size()));

TEST(Comparer, FindsOneWrongElement) {
  Comparer comparer({});
  at::Tensor found = at::zeros({10, 10});
  comparer.Expect(found, at::zeros({10, 10}, at::kDouble), 1e-5, "the right one");
  EXPECT_TRUE(comparer.Result()["passed"]);
  found[3][4] = 0.5;
  comparer.Expect(found, at::zeros({10, 10}, at::kDouble), 1e-5, "the wrong one");
  const nlohmann::json result = comparer.Result();

  EXPECT_FALSE(result["passed"]);
  EXPECT_EQ(result["cases"], 2);
  EXPECT_EQ(result["worst"], "the wrong one");
  EXPECT_DOUBLE_EQ(result["greatest_difference"], 0.5);
}

TEST(Comparer, FindsWhatIsNotANumberAndOtherShapes) {
  Comparer undefined({});
  undefined.Expect(at::full({3}, NAN), at::zeros({3}), 1.0, "NaN");
  EXPECT_FALSE(undefined.Result()["passed"]);
  EXPECT_EQ(undefined.Result()["greatest_difference"], "not finite");
  Comparer other({});
  other.Expect(at::zeros({3}), at::zeros({4}), 1.0, "another shape");
  EXPECT_FALSE(other.Result()["passed"]);
}

TEST(Comparer, MeasuresLargeNumbersByTheirSize) {
  Comparer comparer({});
  comparer.Expect(at::full({1}, 1001.0), at::full({1}, 999.0), 2.1e-3, "thousands");

  EXPECT_TRUE(comparer.Result()["passed"]);
  EXPECT_DOUBLE_EQ(comparer.Result()["greatest_difference"], 2e-3);
}

TEST(Comparer, EqualMeansEveryElement) {
  Comparer comparer({});
  comparer.ExpectEqual(at::full({1}, 1 + 1e-7, at::kDouble), at::ones({1}, at::kDouble), "close");

  EXPECT_FALSE(comparer.Result()["passed"]);
}

TEST(Comparer, HasNotPassedWithoutACase) { EXPECT_FALSE(Comparer({}).Result()["passed"]); }

TEST(MeasureDeviceRates, MeasuresTimesOfBoth) {
  ASSERT_OK_AND_ASSIGN(
      const nlohmann::json rates,
      MeasureDeviceRates(at::kCPU, {.copy_bytes = 1 << 20, .product_size = 64, .repeats = 1}));

  EXPECT_GT(rates["copy_seconds"], 0);
  EXPECT_GT(rates["product_seconds"], 0);
  EXPECT_EQ(rates["copy_bytes"], 1 << 20);
  EXPECT_EQ(rates["product_size"], 64);
}

}  // namespace
}  // namespace tandem::gpu_check
