#include "tools/tandem/gpu_check/limits.h"

#include <gtest/gtest.h>

namespace tandem::gpu_check {
namespace {

constexpr bench::MachineRates kRates{.read_bytes_per_second = 3e12, .flops_per_second = 600e12};

TEST(Limits, ACopyReadsAndWritesEveryByte) { EXPECT_DOUBLE_EQ(CopyTraffic(2e9, 0.5), 8e9); }

TEST(Limits, AProductHasTwoFlopsForEachTripleOfIndices) {
  EXPECT_DOUBLE_EQ(ProductRate(10, 0.5), 4000);
}

TEST(Limits, UtilisationIsOfTheMeasuredProducts) {
  EXPECT_DOUBLE_EQ(Utilisation(150e12, kRates), 0.25);
  EXPECT_EQ(Utilisation(150e12, {}), 0);
}

TEST(Limits, AFewSequencesDecodeAtTheRateOfMemory) {
  // 3 GB take a millisecond, 0.06 Tflop a tenth of one.
  EXPECT_DOUBLE_EQ(DecodeLimit({.bytes = 3e9, .flops = 0.06e12}, 4, kRates), 4000);
}

TEST(Limits, ManySequencesDecodeAtTheRateOfProducts) {
  EXPECT_DOUBLE_EQ(DecodeLimit({.bytes = 3e9, .flops = 1.2e12}, 64, kRates), 32000);
}

TEST(Limits, ThereIsNoDecodeLimitWithoutRates) {
  EXPECT_EQ(DecodeLimit({.bytes = 3e9, .flops = 1e12}, 4, {}), 0);
}

}  // namespace
}  // namespace tandem::gpu_check
