// The device's kernels, run on the CPU (simulated_grid.h), against what the CPU's own code makes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "common/weights/additive_digest.h"
#include "common/weights/device_ops.h"
#include "tests/fakes/simulated_grid.h"
#include "tests/support/status_matchers.h"

namespace tandem::weights {
namespace {

using ::tandem::testing::SimulatedGrid;
using Bytes = std::vector<std::byte>;

Bytes RandomBytes(int64_t size, std::mt19937_64& random) {
  Bytes bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

int64_t Below(int64_t end, std::mt19937_64& random) {
  return std::uniform_int_distribution<int64_t>(0, end - 1)(random);
}

TEST(DigestKernel, IsTheCpusForAnySizeOffsetAddressAndGrid) {
  std::mt19937_64 random(1);
  for (const int64_t blocks : {1, 2, 7}) {
    for (const int64_t size : {1, 2, 3, 4, 5, 6, 127, 4094, 4096, 4098, 8192, 8193, 30010}) {
      for (const int64_t offset : {0, 1, 2, 3, 4, 6, 4090, 4092, 4096, 123458}) {
        for (const int64_t skipped : {0, 1, 2, 4, 6}) {
          const Bytes memory = RandomBytes(size + skipped, random);
          const auto part = absl::MakeConstSpan(memory).subspan(skipped);
          DigestSum expected;
          AddRange(offset, part, expected);
          DigestSum found;
          SimulatedGrid{blocks}.Digest({{part.data(), offset, 0, size, 1, 0}}, {&found, 1});
          ASSERT_EQ(found, expected) << size << " bytes at " << offset << ", address + " << skipped
                                     << ", " << blocks << " blocks";
        }
      }
    }
  }
}

TEST(DigestKernel, RowsOfAMatrixAreTheCpus) {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t grain = int64_t{1} << Below(3, random);
    const int64_t row = grain * (1 + Below(3000, random));
    const int64_t stride = row + grain * Below(3000, random);
    const int64_t rows = 1 + Below(9, random);
    const int64_t offset = grain * Below(5000, random);
    const Bytes bytes = RandomBytes(rows * row, random);
    DigestSum expected;
    AddStrided(offset, stride, row, bytes, expected);
    DigestSum found;
    SimulatedGrid{1 + Below(5, random)}.Digest({{bytes.data(), offset, stride, row, rows, 0}},
                                               {&found, 1});
    ASSERT_EQ(found, expected) << rows << " rows of " << row << " every " << stride << " from "
                               << offset;
  }
}

TEST(DigestKernel, RunsOfAListAddToTheirOwnSums) {
  std::mt19937_64 random(3);
  const Bytes whole = RandomBytes(50000, random);
  std::vector<DigestSum> sums(2);
  SimulatedGrid().Digest({{whole.data() + 20000, 20000, 0, 30000, 1, 1},
                          {whole.data(), 0, 0, 100, 1, 0},
                          {whole.data(), 0, 0, 20000, 1, 1}},
                         absl::MakeSpan(sums));
  EXPECT_EQ(sums[1].Finish(50000), TensorDigestSum(whole));
  EXPECT_EQ(sums[0].Finish(100), TensorDigestSum(absl::MakeConstSpan(whole).first(100)));
}

TEST(CopyKernel, MovesTheRunsAndNothingBesideThem) {
  std::mt19937_64 random(4);
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t grain = int64_t{1} << Below(6, random);
    CopyRun run;
    run.size = grain * Below(70, random);
    run.repeat = 1 + Below(6, random);
    run.from_stride = run.size + grain * Below(5, random);
    run.to_stride = run.size + grain * Below(5, random);
    const int64_t skipped = grain * Below(3, random);
    const Bytes from = RandomBytes(skipped + run.from_stride * run.repeat, random);
    Bytes to = RandomBytes(skipped + run.to_stride * run.repeat, random);
    Bytes expected = to;
    for (int64_t i = 0; i < run.repeat; ++i) {
      std::copy_n(from.begin() + skipped + i * run.from_stride, run.size,
                  expected.begin() + skipped + i * run.to_stride);
    }
    run.from = from.data() + skipped;
    run.to = to.data() + skipped;
    SimulatedGrid{1 + Below(3, random)}.Copy({run});
    ASSERT_EQ(to, expected) << run.repeat << " runs of " << run.size;
  }
}

std::vector<uint16_t> CastAll(const std::vector<uint32_t>& bits, WireElement element) {
  std::vector<uint16_t> out(bits.size());
  SimulatedGrid{64}.Cast(
      element, {{reinterpret_cast<const float*>(bits.data()),
                 reinterpret_cast<std::byte*>(out.data()), static_cast<int64_t>(bits.size())}});
  return out;
}

// Every pattern of sign, exponent and leading mantissa with the rests that decide how it is
// rounded: nothing, just below a tie, the tie, just above it, all ones.
std::vector<uint32_t> Patterns(int kept_bits) {
  std::vector<uint32_t> bits;
  const uint32_t unit = uint32_t{1} << (32 - kept_bits);
  for (uint64_t high = 0; high < uint64_t{1} << 32; high += unit) {
    for (const uint32_t rest : {0u, 1u, unit / 2 - 1, unit / 2, unit / 2 + 1, unit - 1}) {
      bits.push_back(static_cast<uint32_t>(high) | rest);
    }
  }
  return bits;
}

TEST(CastKernel, RoundsToBfloat16AsC10Does) {
  const std::vector<uint32_t> bits = Patterns(16);
  const std::vector<uint16_t> found = CastAll(bits, WireElement::kBfloat16);
  for (size_t i = 0; i < bits.size(); ++i) {
    const float value = std::bit_cast<float>(bits[i]);
    ASSERT_EQ(found[i], c10::BFloat16(value).x) << std::hex << bits[i];
  }
}

TEST(CastKernel, RoundsToFloat16AsC10Does) {
  // 19 bits: ties of normal numbers lie behind bit 19; the rests of subnormal ones are longer.
  const std::vector<uint32_t> bits = Patterns(19);
  const std::vector<uint16_t> found = CastAll(bits, WireElement::kFloat16);
  for (size_t i = 0; i < bits.size(); ++i) {
    const float value = std::bit_cast<float>(bits[i]);
    if (std::isnan(value)) {
      ASSERT_EQ(found[i] & 0x7FFF, 0x7E00) << std::hex << bits[i];
    } else {
      ASSERT_EQ(found[i], c10::Half(value).x) << std::hex << bits[i];
    }
  }
}

// Pieces of a shard, as the CPU packs them.
TEST(CastKernel, PacksRunsAsTheCpuDoes) {
  std::mt19937_64 random(5);
  std::vector<uint32_t> bits(4099);
  for (uint32_t& b : bits) {
    do b = static_cast<uint32_t>(random());
    while (std::isnan(std::bit_cast<float>(b)));
  }
  for (const WireElement element :
       {WireElement::kFloat32, WireElement::kBfloat16, WireElement::kFloat16}) {
    for (int trial = 0; trial < 100; ++trial) {
      CastRun run;
      run.length = 1 + Below(200, random);
      run.repeat = 1 + Below(10, random);
      run.from_stride = run.length + Below(100, random);
      run.from = reinterpret_cast<const float*>(bits.data()) +
                 Below(4099 - run.from_stride * run.repeat, random);
      Bytes expected(run.length * run.repeat * WireElementBytes(element));
      Bytes found(expected.size());
      run.to = expected.data();
      ASSERT_OK(CpuOps().Cast(element, {run}));
      run.to = found.data();
      SimulatedGrid().Cast(element, {run});
      ASSERT_EQ(found, expected) << WireElementBytes(element) << " bytes, " << run.repeat
                                 << " runs of " << run.length;
    }
  }
}

// Where they lie in a vector decides which NaN the CPU makes of one; that it is one, nothing does.
TEST(CastKernel, ANanStaysOne) {
  for (const float sign : {1.f, -1.f}) {
    const float nan = std::copysign(std::numeric_limits<float>::quiet_NaN(), sign);
    EXPECT_TRUE(std::isnan(static_cast<float>(
        c10::BFloat16(Bfloat16Bits(std::bit_cast<uint32_t>(nan)), c10::BFloat16::from_bits()))));
    EXPECT_TRUE(std::isnan(static_cast<float>(
        c10::Half(Float16Bits(std::bit_cast<uint32_t>(nan)), c10::Half::from_bits()))));
  }
}

}  // namespace
}  // namespace tandem::weights
