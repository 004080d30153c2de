// The CUDA products of few rows on a CPU, against float64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "tests/support/cuda_emulation.h"
#include "tests/support/huge_array.h"
// After it.
#include "common/model/kernels/cuda/few_rows_product.cu"

namespace tandem::model {
namespace {

class FewRows : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  static at::Tensor Random(at::IntArrayRef sizes) { return at::randn(sizes).to(at::kBFloat16); }

  static cuda::FewRowsProduct ArgsOf(const at::Tensor& x, const at::Tensor& weight,
                                     const at::Tensor& bias, const at::Tensor& out) {
    cuda::FewRowsProduct args;
    args.out_type =
        out.scalar_type() == at::kFloat ? cuda::Element::kFloat32 : cuda::Element::kBFloat16;
    args.rows = x.size(0);
    args.in = x.size(1);
    args.out_size = weight.size(0);
    args.x = x.const_data_ptr();
    args.weight = weight.const_data_ptr();
    if (bias.defined()) args.bias = bias.const_data_ptr();
    args.out = out.mutable_data_ptr();
    return args;
  }

  static at::Tensor Multiply(const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias) {
    const at::Tensor out = at::full({x.size(0), weight.size(0)}, NAN, GetParam());
    EXPECT_EQ(cuda::Launch(ArgsOf(x, weight, bias, out), nullptr), cudaSuccess);
    return out;
  }
};

INSTANTIATE_TEST_SUITE_P(Types, FewRows, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

// Widths of one load and of many, that end within a step, with warps that have nothing; columns for
// each of the launch's shapes, odd ones among them.
TEST_P(FewRows, AreTheProducts) {
  at::manual_seed(2);
  for (const int64_t in : {8, 264, 1032, 4112}) {
    for (const int64_t out_size : {1, 70, 1585, 3169}) {
      if (in > 1032 && out_size > 70) continue;
      for (int64_t rows = 1; rows <= cuda::kMostFewRows; ++rows) {
        const at::Tensor x = Random({rows, in}), weight = Random({out_size, in});
        for (const at::Tensor& bias : {at::Tensor(), Random({out_size})}) {
          const at::Tensor found = Multiply(x, weight, bias);
          at::Tensor expected = at::matmul(x.to(at::kDouble), weight.to(at::kDouble).t());
          if (bias.defined()) expected = expected + bias.to(at::kDouble);
          // Of float32 sums of `in` products of about 1, and of the result's rounding.
          const double absolute = 1e-6 * std::sqrt(static_cast<double>(in));
          const double relative = GetParam() == at::kFloat ? 1e-6 : 1.0 / 256;
          EXPECT_TRUE(at::allclose(found.to(at::kDouble), expected, relative, absolute))
              << rows << " x " << in << " x " << out_size << ": "
              << (found.to(at::kDouble) - expected).abs().max().item<double>();
        }
      }
    }
  }
}

TEST_P(FewRows, ARowAloneIsTheRowAmongOthers) {
  at::manual_seed(3);
  for (const int64_t out_size : {70, 1585, 3169}) {
    const at::Tensor x = Random({cuda::kMostFewRows, 520}), weight = Random({out_size, 520});
    const at::Tensor all = Multiply(x, weight, {});
    for (int64_t row = 0; row < cuda::kMostFewRows; ++row) {
      const at::Tensor alone = Multiply(x.narrow(0, row, 1).clone(), weight, {});
      EXPECT_EQ(std::memcmp(alone.const_data_ptr(), all[row].const_data_ptr(), alone.nbytes()), 0)
          << row << " of " << out_size;
    }
  }
}

// A weight with more elements than 32 bits count.
TEST_P(FewRows, TheLastColumnsOfAHugeWeightAreTheProducts) {
  constexpr int64_t kIn = 4096, kOut = (int64_t{1} << 19) + 8, kLast = 8;
  const at::Tensor x = Random({2, kIn}), last = Random({kLast, kIn});
  const testing::HugeArray<at::BFloat16> weight(kOut * kIn);
  std::memcpy(weight.data() + (kOut - kLast) * kIn, last.const_data_ptr(), last.nbytes());
  const at::Tensor out = at::empty({2, kOut}, GetParam());
  cuda::FewRowsProduct args = ArgsOf(x, last, {}, out);
  args.weight = weight.data();
  args.out_size = kOut;
  {
    const cuda_emulation::OnlyBlocks few(
        [](dim3 block) { return block.x + kLast >= cuda_emulation::Gpu::Current().grid_size().x; });
    ASSERT_EQ(cuda::Launch(args, nullptr), cudaSuccess);
  }
  const at::Tensor expected = at::matmul(x.to(at::kDouble), last.to(at::kDouble).t());
  const at::Tensor found = out.narrow(1, kOut - kLast, kLast).to(at::kDouble);
  EXPECT_TRUE(at::allclose(found, expected, 1.0 / 256, 1e-4))
      << (found - expected).abs().max().item<double>();
}

TEST_P(FewRows, OtherSizesAndAddressesAreLeftToOthers) {
  const at::Tensor weight = Random({3, 16}), out = at::empty({5, 3}, GetParam());
  const auto takes = [&](const at::Tensor& x, const at::Tensor& by) {
    return cuda::Takes(ArgsOf(x, by, {}, out));
  };
  EXPECT_TRUE(takes(Random({1, 16}), weight));
  EXPECT_FALSE(takes(Random({0, 16}), weight));
  EXPECT_FALSE(takes(Random({cuda::kMostFewRows + 1, 16}), weight));
  EXPECT_FALSE(takes(Random({1, 12}), Random({3, 12})));
  const at::Tensor room = Random({4 * 16});
  EXPECT_FALSE(takes(Random({1, 16}), room.narrow(0, 1, 48).view({3, 16})));
  EXPECT_EQ(cuda::Launch(ArgsOf(Random({5, 16}), weight, {}, out), nullptr), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace tandem::model
