// The matrix product on every instruction set that this machine has.
#include "common/model/kernels/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "common/model/kernels/bfloat16_product.h"
#include "hwy/targets.h"

namespace tandem::model::kernels {
namespace {

void InThisThread(int64_t count, const RangeBody& body) {
  if (count > 0) body(0, count);
}

void InThreeThreads(int64_t count, const RangeBody& body) {
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      if (count * i / 3 < count * (i + 1) / 3) body(count * i / 3, count * (i + 1) / 3);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Values that are exact in bfloat16.
std::vector<float> Values(int64_t count, int seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(static_cast<int>(random() % 255) - 127) / 64.0f;
  }
  return values;
}

// A matrix [rows, cols] in either element type and either order.
struct Matrix {
  Matrix(int64_t rows, int64_t cols, Element type, bool transposed, int seed)
      : values(Values(rows * cols, seed)), rows(rows), cols(cols) {
    std::vector<float> stored(values.size());
    const int64_t row_stride = transposed ? 1 : cols;
    const int64_t col_stride = transposed ? rows : 1;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        stored[i * row_stride + j * col_stride] = values[i * cols + j];
      }
    }
    bytes.resize(stored.size() * SizeOf(type));
    for (size_t i = 0; i < stored.size(); ++i) {
      BFloat16 half;
      FromFloat(stored[i], half);
      if (type == Element::kFloat32) std::memcpy(&bytes[4 * i], &stored[i], 4);
      if (type == Element::kBFloat16) std::memcpy(&bytes[2 * i], &half, 2);
    }
    view = {bytes.data(), type, row_stride, col_stride};
  }
  std::vector<float> values;
  int64_t rows, cols;
  std::vector<char> bytes;
  ConstMatrix view;
};

// Contents whose sums are rounded at every step, so that another order shows; `values` are not
// theirs.
Matrix Rough(int64_t rows, int64_t cols, Element type, bool transposed, int seed) {
  Matrix matrix(rows, cols, type, transposed, seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < rows * cols; ++i) {
    const float value = normal(random);
    BFloat16 half;
    FromFloat(value, half);
    if (type == Element::kFloat32) std::memcpy(&matrix.bytes[4 * i], &value, 4);
    if (type == Element::kBFloat16) std::memcpy(&matrix.bytes[2 * i], &half, 2);
  }
  return matrix;
}

// Beside Highway's targets, in which bfloat16 is multiplied in float32 arithmetic.
constexpr int64_t kTiles = -1;
constexpr int64_t kVectors = -2;

class GemmOnTarget : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    LimitBFloat16UnitForTest(GetParam() == kTiles     ? BFloat16Unit::kTiles
                             : GetParam() == kVectors ? BFloat16Unit::kVectors
                                                      : BFloat16Unit::kNone);
    const bool is_highways = GetParam() != kTiles && GetParam() != kVectors;
    hwy::SetSupportedTargetsForTest(is_highways ? GetParam() : 0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  void TearDown() override {
    LimitBFloat16UnitForTest(BFloat16Unit::kTiles);
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

TEST_P(GemmOnTarget, AgreesWithThePlainSumInEveryLayout) {
  const std::vector<std::tuple<int64_t, int64_t, int64_t>> sizes = {
      {1, 1, 1},     {1, 70, 400},   {2, 131, 17}, {5, 33, 64},
      {13, 600, 10}, {150, 37, 800}, {3, 3, 0},    {300, 20, 0}};
  for (const auto& [m, n, k] : sizes) {
    for (int layout = 0; layout < 16; ++layout) {
      const Element a_type = layout & 1 ? Element::kBFloat16 : Element::kFloat32;
      const Element b_type = layout & 2 ? Element::kBFloat16 : Element::kFloat32;
      const Matrix a(m, k, a_type, layout & 4, 1);
      const Matrix b(k, n, b_type, layout & 8, 2);
      const std::vector<float> bias = Values(n, 3);
      std::vector<float> plain(m * n, -1.0f), packed(m * n, -1.0f), sum(m * n, 2.0f);
      Product p;
      p.m = m;
      p.n = n;
      p.k = k;
      p.a = a.view;
      p.b = b.view;
      p.c = plain.data();
      p.c_row_stride = n;
      p.bias = bias.data();
      Multiply(p, 1, InThisThread);
      const PackedMatrix packed_b(b.view, k, n);
      p.packed_b = &packed_b;
      p.c = packed.data();
      Multiply(p, 3, InThreeThreads);
      p.packed_b = nullptr;
      p.bias = nullptr;
      p.accumulate = true;
      p.c = sum.data();
      Multiply(p, 3, InThreeThreads);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double expected = 0;
          for (int64_t l = 0; l < k; ++l) {
            expected += static_cast<double>(a.values[i * k + l]) * b.values[l * n + j];
          }
          const double tolerance = 1e-4 * (1 + std::sqrt(static_cast<double>(k)));
          ASSERT_NEAR(plain[i * n + j], expected + bias[j], tolerance)
              << m << "x" << n << "x" << k << " layout " << layout << " at " << i << ", " << j;
          ASSERT_NEAR(sum[i * n + j], expected + 2, tolerance);
        }
      }
      ASSERT_EQ(plain, packed) << m << "x" << n << "x" << k << " layout " << layout;
    }
  }
}

TEST_P(GemmOnTarget, ARowsBitsDoNotDependOnTheOtherRows) {
  const int64_t n = 75, k = 500;
  const Matrix a = Rough(200, k, Element::kFloat32, false, 1);
  const Matrix b = Rough(k, n, Element::kFloat32, true, 2);
  std::vector<float> all(200 * n);
  Product p;
  p.m = 200;
  p.n = n;
  p.k = k;
  p.a = a.view;
  p.b = b.view;
  p.c = all.data();
  p.c_row_stride = n;
  Multiply(p, 3, InThreeThreads);
  for (int64_t rows : {1, 2, 3, 7, 40}) {
    std::vector<float> some(rows * n);
    p.m = rows;
    p.c = some.data();
    Multiply(p, 1, InThisThread);
    EXPECT_EQ(some, std::vector<float>(all.begin(), all.begin() + rows * n)) << rows;
  }
}

// Products of any height with a packed matrix, in one thread and in three: the bits of the product
// that packs nothing ahead.
TEST_P(GemmOnTarget, PackedRowsBitsAreThoseOfTheWholeProduct) {
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{75, 500}, {449, 200}, {128, 1031}}) {
    for (const Element type : {Element::kFloat32, Element::kBFloat16}) {
      const Matrix a = Rough(200, k, type, false, 1);
      const Matrix b = Rough(k, n, type, true, 2);
      std::vector<float> all(200 * n);
      Product p;
      p.m = 200;
      p.n = n;
      p.k = k;
      p.a = a.view;
      p.b = b.view;
      p.c = all.data();
      p.c_row_stride = n;
      Multiply(p, 3, InThreeThreads);
      const PackedMatrix packed(b.view, k, n);
      p.packed_b = &packed;
      for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 32, 97, 200}) {
        // From another row on: a row's place in the batch is of no matter either.
        const int64_t first = rows < 100 ? 100 : 0;
        p.a.data = a.bytes.data() + first * k * SizeOf(type);
        p.m = rows;
        std::vector<float> some(rows * n, -1.0f), more(rows * n, 2.0f);
        p.c = some.data();
        Multiply(p, 3, InThreeThreads);
        const auto begin = all.begin() + first * n;
        ASSERT_EQ(some, std::vector<float>(begin, begin + rows * n))
            << rows << " of " << n << "x" << k;
        p.c = more.data();
        p.accumulate = true;
        Multiply(p, 1, InThisThread);
        p.accumulate = false;
        for (int64_t i = 0; i < rows * n; ++i) ASSERT_NEAR(more[i], some[i] + 2, 1e-2) << i;
      }
    }
  }
}

TEST_P(GemmOnTarget, PanelsPackedOneByOneInGivenMemoryAreThoseOfAll) {
  for (const Element type : {Element::kFloat32, Element::kBFloat16}) {
    const int64_t n = 3 * PackedMatrix::panel_columns(type) + 5, k = 77;
    const Matrix b(k, n, type, true, 2);
    const PackedMatrix all(b.view, k, n);
    const Buffer memory = AllocateBytes(PackedMatrix::SizeBytes(type, k, n));
    PackedMatrix parts(type, k, n, memory.get());
    ASSERT_EQ(parts.num_panels(), 4);
    for (int64_t panel : {2, 0, 3, 1}) parts.Repack(b.view, panel, panel + 1);
    EXPECT_EQ(std::memcmp(parts.data(), all.data(), all.size_bytes()), 0);
  }
}

// The parts of a matrix in any order, of any size, wherever panels and rows begin.
TEST_P(GemmOnTarget, WhatIsWrittenInPartsIsWhatWasPackedAndIsReadBack) {
  std::mt19937 random(3);
  for (const Element type : {Element::kFloat32, Element::kBFloat16}) {
    const int64_t panel = PackedMatrix::panel_columns(type);
    for (const auto& [n, k] : {std::pair{3 * panel + 5, int64_t{77}},
                               {panel, int64_t{64}},
                               {panel - 1, int64_t{32}},
                               {2 * panel + 17, int64_t{1}},
                               {int64_t{1}, int64_t{200}}}) {
      const Matrix b(k, n, type, true, 2);
      const int64_t element = SizeOf(type);
      const auto* const plain = static_cast<const std::byte*>(b.view.data);
      const PackedMatrix all(b.view, k, n);
      for (const int64_t longest : {int64_t{1}, int64_t{40}, panel * k, 3 * panel * k}) {
        std::vector<std::pair<int64_t, int64_t>> parts;
        for (int64_t first = 0; first < n * k;) {
          const int64_t count =
              std::min(n * k - first, 1 + static_cast<int64_t>(random()) % longest);
          parts.emplace_back(first, count);
          first += count;
        }
        std::shuffle(parts.begin(), parts.end(), random);
        const Buffer memory = AllocateBytes(all.size_bytes());
        std::memset(memory.get(), 0, all.size_bytes());
        PackedMatrix written(type, k, n, memory.get());
        std::vector<std::byte> read(n * k * element);
        for (const auto& [first, count] : parts)
          written.Write(first, count, plain + first * element);
        ASSERT_EQ(std::memcmp(written.data(), all.data(), all.size_bytes()), 0)
            << n << "x" << k << ", parts of up to " << longest;
        for (const auto& [first, count] : parts) {
          written.Read(first, count, read.data() + first * element);
        }
        ASSERT_EQ(std::memcmp(read.data(), plain, read.size()), 0)
            << n << "x" << k << ", parts of up to " << longest;
      }
    }
  }
}

TEST_P(GemmOnTarget, RoundsToTheNearestBFloat16) {
  // 1 + 2^-8 lies half way between two bfloat16 values and goes to the even one.
  const float values[] = {1.0f + 0x1p-8f, 1.0f + 0x1p-8f + 0x1p-20f, 1.0f + 3 * 0x1p-8f, INFINITY,
                          NAN};
  const float one = 1.0f;
  BFloat16 out[5];
  Product p;
  p.m = 5;
  p.n = 1;
  p.k = 1;
  p.a = {values, Element::kFloat32, 1, 1};
  p.b = {&one, Element::kFloat32, 1, 1};
  p.c = out;
  p.c_type = Element::kBFloat16;
  p.c_row_stride = 1;
  Multiply(p, 1, InThisThread);
  EXPECT_EQ(ToFloat(out[0]), 1.0f);
  EXPECT_EQ(ToFloat(out[1]), 1.0f + 0x1p-7f);
  EXPECT_EQ(ToFloat(out[2]), 1.0f + 2 * 0x1p-7f);
  EXPECT_TRUE(std::isinf(ToFloat(out[3])));
  EXPECT_TRUE(std::isnan(ToFloat(out[4])));
}

std::vector<int64_t> Targets() {
  std::vector<int64_t> targets;
  for (int64_t target : {int64_t{HWY_AVX3}, int64_t{HWY_AVX2}, int64_t{HWY_SCALAR}}) {
    if ((hwy::SupportedTargets() & target) != 0) targets.push_back(target);
  }
  if (CurrentBFloat16Unit() >= BFloat16Unit::kVectors) targets.push_back(kVectors);
  if (CurrentBFloat16Unit() >= BFloat16Unit::kTiles) targets.push_back(kTiles);
  return targets;
}

INSTANTIATE_TEST_SUITE_P(Targets, GemmOnTarget, ::testing::ValuesIn(Targets()),
                         [](const ::testing::TestParamInfo<int64_t>& info) {
                           if (info.param == kTiles) return std::string("AMX");
                           if (info.param == kVectors) return std::string("AVX512BF16");
                           return std::string(hwy::TargetName(info.param)).substr(0, 8);
                         });

}  // namespace
}  // namespace tandem::model::kernels
