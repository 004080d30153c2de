// The CUDA products of exact numerics on a CPU: rows do not depend on what shares their batch.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/support/cuda_emulation.h"
#include "tests/support/huge_array.h"
// After it.
#include "common/model/kernels/cuda/row_product.cu"

namespace tandem::model {
namespace {

struct ProductCase {
  at::ScalarType type;
  at::ScalarType out_type;
};

cuda::Element ElementOf(at::ScalarType type) {
  return type == at::kFloat ? cuda::Element::kFloat32 : cuda::Element::kBFloat16;
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

class CudaRowProduct : public ::testing::TestWithParam<ProductCase> {
 protected:
  static at::Tensor Random(at::IntArrayRef sizes) { return at::randn(sizes).to(GetParam().type); }

  // Of contiguous rows; data is the caller's to give.
  static cuda::RowProduct ArgsOf(int64_t rows, int64_t in, int64_t out_size) {
    cuda::RowProduct args;
    args.type = ElementOf(GetParam().type);
    args.out_type = ElementOf(GetParam().out_type);
    args.rows = rows;
    args.in = in;
    args.out_size = out_size;
    return args;
  }

  // All contiguous.
  static at::Tensor Multiply(const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias) {
    at::Tensor out = at::full({x.size(0), weight.size(0)}, NAN, GetParam().out_type);
    cuda::RowProduct args = ArgsOf(x.size(0), x.size(1), weight.size(0));
    args.x = x.const_data_ptr();
    args.weight = weight.const_data_ptr();
    if (bias.defined()) args.bias = bias.const_data_ptr();
    args.out = out.mutable_data_ptr();
    std::vector<float> partial(cuda::PartialFloats(args), NAN);
    args.partial = partial.data();
    EXPECT_EQ(cuda::Launch(args, nullptr), cudaSuccess);
    return out;
  }

  // The same elements at an address that is a multiple of one element's size only.
  static at::Tensor Misaligned(const at::Tensor& x) {
    const at::Tensor room = at::empty({x.numel() + 1}, x.options());
    return room.narrow(0, 1, x.numel()).view(x.sizes()).copy_(x);
  }
};

struct Sizes {
  int64_t in;
  int64_t out;
};
const std::vector<Sizes> kSizes = {{40, 24}, {512, 64}, {1031, 70}, {1544, 130}};

TEST_P(CudaRowProduct, ARowAloneIsTheRowInAnyBatch) {
  at::manual_seed(1);
  for (const auto& [in, out] : kSizes) {
    const at::Tensor x = Random({130, in});
    const at::Tensor weight = Random({out, in});
    const at::Tensor bias = Random({out});
    const at::Tensor all = Multiply(x, weight, bias);
    for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 1}, {77, 1}, {129, 1}, {3, 5}, {60, 64}, {1, 64}, {17, 65}, {2, 128}}) {
      const at::Tensor rows = Multiply(x.narrow(0, first, count).clone(), weight, bias);
      EXPECT_TRUE(SameBits(rows, all.narrow(0, first, count)))
          << in << " to " << out << ", rows " << first << " to " << first + count;
    }
  }
}

// One that needs no partial sums, and rows of it that do.
TEST_P(CudaRowProduct, ARowAloneIsTheRowOfALargeProduct) {
  at::manual_seed(4);
  const at::Tensor x = Random({512, 530});
  const at::Tensor weight = Random({1000, 530});
  cuda::RowProduct args;
  args.in = 530;
  args.out_size = 1000;
  args.rows = 512;
  ASSERT_EQ(cuda::PartialFloats(args), 0);
  args.rows = 65;
  ASSERT_EQ(cuda::PartialFloats(args), 2 * 65 * 1000);
  const at::Tensor all = Multiply(x, weight, {});
  for (const auto& [first, count] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {511, 1}, {300, 65}}) {
    EXPECT_TRUE(SameBits(Multiply(x.narrow(0, first, count).clone(), weight, {}),
                         all.narrow(0, first, count)))
        << "rows " << first << " to " << first + count;
  }
}

TEST_P(CudaRowProduct, AddressesDoNotMatter) {
  at::manual_seed(2);
  for (const auto& [in, out] : kSizes) {
    const at::Tensor x = Random({3, in});
    const at::Tensor weight = Random({out, in});
    EXPECT_TRUE(SameBits(Multiply(Misaligned(x), weight, {}), Multiply(x, weight, {})));
    EXPECT_TRUE(SameBits(Multiply(x, Misaligned(weight), {}), Multiply(x, weight, {})));
  }
}

TEST_P(CudaRowProduct, IsTheProductInFloat64) {
  at::manual_seed(3);
  for (const auto& [in, out] : kSizes) {
    for (const int64_t rows : {1, 67}) {
      const at::Tensor x = Random({rows, in});
      const at::Tensor weight = Random({out, in});
      for (const at::Tensor& bias : {at::Tensor(), Random({out})}) {
        at::Tensor expected = at::mm(x.to(at::kDouble), weight.to(at::kDouble).t());
        if (bias.defined()) expected += bias.to(at::kDouble);
        const at::Tensor found = Multiply(x, weight, bias).to(at::kDouble);
        // Of a sum of `in` products of size 1.
        const double absolute = 2e-7 * static_cast<double>(in);
        const double relative = GetParam().out_type == at::kFloat ? 2e-6 : 4e-3;
        EXPECT_TRUE(at::allclose(found, expected, relative, absolute))
            << in << " to " << out << ": " << (found - expected).abs().max().item<double>();
      }
    }
  }
}

// x and the result have more elements than 32 bits count, and more rows of tiles than a grid has along y.
TEST_P(CudaRowProduct, TheLastOfVeryManyRowsIsTheRowAlone) {
  at::manual_seed(5);
  constexpr int64_t kIn = 1024, kOut = 1030, kRows = (int64_t{1} << 22) + 3;
  const at::Tensor row = Random({1, kIn}), weight = Random({kOut, kIn});
  const auto bytes = static_cast<int64_t>(row.element_size());
  const auto out_bytes = static_cast<int64_t>(c10::elementSize(GetParam().out_type));
  const testing::HugeArray<char> x(kRows * kIn * bytes), out(kRows * kOut * out_bytes);
  std::memcpy(x.data() + (kRows - 1) * kIn * bytes, row.const_data_ptr(), row.nbytes());
  cuda::RowProduct args = ArgsOf(kRows, kIn, kOut);
  args.x = x.data();
  args.weight = weight.const_data_ptr();
  args.out = out.data();
  ASSERT_EQ(cuda::PartialFloats(args), 0);
  {
    const cuda_emulation::OnlyBlocks last([](dim3 block) {
      const dim3 grid = cuda_emulation::Gpu::Current().grid_size();
      return block.x + 1 == grid.x;
    });
    ASSERT_EQ(cuda::Launch(args, nullptr), cudaSuccess);
  }
  const at::Tensor alone = Multiply(row, weight, {});
  const int64_t first = kOut / 64 * 64;  // of the last tile
  EXPECT_EQ(std::memcmp(out.data() + ((kRows - 1) * kOut + first) * out_bytes,
                        static_cast<const char*>(alone.const_data_ptr()) + first * out_bytes,
                        static_cast<size_t>((kOut - first) * out_bytes)),
            0);
}

// The last of two groups of very many rows.
TEST_P(CudaRowProduct, TheLastRowsOfVeryManyAreThoseOfTheirGroup) {
  at::manual_seed(7);
  constexpr int64_t kIn = 24, kOut = 70, kLast = 5, kRows = (int64_t{1} << 22) + kLast;
  const at::Tensor own = Random({kLast, kIn}), weights = Random({2, kOut, kIn});
  const auto bytes = static_cast<int64_t>(own.element_size());
  const auto out_bytes = static_cast<int64_t>(c10::elementSize(GetParam().out_type));
  const testing::HugeArray<char> x(kRows * kIn * bytes), out(kRows * kOut * out_bytes);
  std::memcpy(x.data() + (kRows - kLast) * kIn * bytes, own.const_data_ptr(), own.nbytes());
  const std::vector<int64_t> first = {0, kRows - kLast, kRows};
  cuda::RowProduct args = ArgsOf(kRows, kIn, kOut);
  args.x = x.data();
  args.weight = weights.const_data_ptr();
  args.out = out.data();
  args.first = first.data();
  args.groups = 2;
  args.weight_stride = kOut * kIn;
  {
    // The first group fills tiles; one follows for the second, and one is left over.
    const cuda_emulation::OnlyBlocks last(
        [](dim3 block) { return block.x + 4 >= cuda_emulation::Gpu::Current().grid_size().x; });
    ASSERT_EQ(cuda::Launch(args, nullptr), cudaSuccess);
  }
  const at::Tensor alone = Multiply(own, weights[1].clone(), {});
  EXPECT_EQ(std::memcmp(out.data() + (kRows - kLast) * kOut * out_bytes, alone.const_data_ptr(),
                        alone.nbytes()),
            0);
}

// Groups without rows, of one row, of a tile and more; rows before and behind all of them are left alone.
TEST_P(CudaRowProduct, GroupsHaveTheRowsOfTheirOwnProducts) {
  at::manual_seed(6);
  for (const int64_t out : {24, 130}) {
    for (const int64_t in : {40, 1031}) {
      std::vector<int64_t> first = {2, 2, 3, 3, 70, 134, 200};
      for (int i = 0; i < 40; ++i) first.push_back(first.back() + i % 3);
      const auto groups = static_cast<int64_t>(first.size()) - 1;
      const int64_t rows = first.back() + 5;
      const at::Tensor x = Random({rows, in});
      const at::Tensor weights = Random({groups, out + 3, in});  // with a gap behind each
      const at::Tensor biases = Random({groups, out + 1});
      at::Tensor found = at::full({rows, out}, -7, GetParam().out_type);
      cuda::RowProduct args = ArgsOf(rows, in, out);
      args.x = x.const_data_ptr();
      args.weight = weights.const_data_ptr();
      args.bias = biases.const_data_ptr();
      args.out = found.mutable_data_ptr();
      args.first = first.data();
      args.groups = groups;
      args.weight_stride = weights.stride(0);
      args.bias_stride = biases.stride(0);
      std::vector<float> partial(cuda::PartialFloats(args), NAN);
      args.partial = partial.data();
      ASSERT_EQ(cuda::Launch(args, nullptr), cudaSuccess);
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t count = first[g + 1] - first[g];
        if (count == 0) continue;
        const at::Tensor expected =
            Multiply(x.narrow(0, first[g], count).clone(), weights[g].narrow(0, 0, out).clone(),
                     biases[g].narrow(0, 0, out).clone());
        EXPECT_TRUE(SameBits(found.narrow(0, first[g], count), expected))
            << in << " to " << out << ", group " << g;
      }
      EXPECT_TRUE(found.narrow(0, 0, 2).eq(-7).all().item<bool>());
      EXPECT_TRUE(found.narrow(0, rows - 5, 5).eq(-7).all().item<bool>());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaRowProduct,
                         ::testing::Values(ProductCase{at::kFloat, at::kFloat},
                                           ProductCase{at::kBFloat16, at::kBFloat16},
                                           ProductCase{at::kBFloat16, at::kFloat}),
                         [](const auto& info) {
                           return std::string(c10::toString(info.param.type)) + "To" +
                                  c10::toString(info.param.out_type);
                         });

TEST(CudaRowProductArguments, MissingPartialSumsAreRefused) {
  cuda::RowProduct args;
  args.rows = 1;
  args.in = 1024;
  args.out_size = 8;
  EXPECT_EQ(cuda::PartialFloats(args), 2 * 8);
  EXPECT_EQ(cuda::Launch(args, nullptr), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace tandem::model
