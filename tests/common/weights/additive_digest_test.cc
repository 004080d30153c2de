#include "common/weights/additive_digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "tests/support/on_simd_target.h"
#include "tests/support/random_bytes.h"

namespace tandem::weights {
namespace {

using ::tandem::testing::RandomBytes;
using Bytes = std::vector<std::byte>;

constexpr int64_t kBlockBytes = 4096;

int64_t Below(int64_t end, std::mt19937_64& random) {
  return std::uniform_int_distribution<int64_t>(0, end - 1)(random);
}

// The definition, byte by byte.
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

uint32_t Factor(uint64_t lane, uint64_t j) {
  return static_cast<uint32_t>(Mix(lane * 1024 + j) >> 32) | 1;
}

DigestSum NaiveSum(const Bytes& bytes) {
  DigestSum sum;
  for (uint64_t at = 0; at < bytes.size(); ++at) {
    const uint64_t part = static_cast<uint64_t>(bytes[at]) << (8 * (at % 4));
    const uint64_t word = at / 4;
    for (uint64_t lane = 0; lane < 2; ++lane) {
      const uint64_t block_factor = Mix((uint64_t{1} << 62) + 2 * (word / 1024) + lane) | 1;
      sum.lanes[lane] += block_factor * Factor(lane, word % 1024) * part;
    }
  }
  return sum;
}

class AdditiveDigestOnTarget : public testing::OnSimdTarget {};

TEST_P(AdditiveDigestOnTarget, IsItsDefinition) {
  std::mt19937_64 random(1);
  for (const int64_t size : {0, 1, 2, 3, 4, 5, 31, 32, 33, 4094, 4095, 4096, 4097, 4098, 30011}) {
    // Not at the beginning of an allocation: sources are at any address.
    for (const int64_t skipped : {0, 1, 2, 7}) {
      const Bytes memory = RandomBytes(size + skipped, random);
      const auto part = absl::MakeConstSpan(memory).subspan(skipped);
      DigestSum sum;
      AddRange(0, part, sum);
      EXPECT_EQ(sum, NaiveSum(Bytes(part.begin(), part.end()))) << size << " from " << skipped;
    }
  }
}

TEST_P(AdditiveDigestOnTarget, OfACopyIsThatOfItsBytes) {
  std::mt19937_64 random(5);
  for (const int64_t size : {0, 1, 3, 4, 31, 32, 63, 64, 65, 4095, 4096, 4097, 30011}) {
    for (const int64_t offset : {0, 1, 2, 7, 4090}) {
      for (const int64_t skipped : {0, 3}) {
        const Bytes from = RandomBytes(size, random);
        Bytes to(size + skipped + 1, std::byte{0x5a});
        DigestSum copied, added;
        CopyRange(offset, from, to.data() + skipped, copied);
        AddRange(offset, from, added);
        EXPECT_EQ(copied, added) << size << " from " << offset;
        EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin() + skipped));
        EXPECT_EQ(to.back(), std::byte{0x5a}) << "beyond the copy";
      }
    }
  }
}

TEST_P(AdditiveDigestOnTarget, RangesOfAnyPartitionSumToTheWhole) {
  std::mt19937_64 random(2);
  for (const int64_t grain : {1, 2, 4}) {
    for (int trial = 0; trial < 200; ++trial) {
      const Bytes tensor = RandomBytes(Below(40000, random) * grain / 4 + 1, random);
      const int64_t size = tensor.size();
      std::set<int64_t> cuts = {0, size};
      for (int64_t i = Below(20, random); i > 0; --i)
        cuts.insert(Below(size, random) / grain * grain);
      std::vector<DigestSum> ranks(3);
      for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
        const auto range = absl::MakeConstSpan(tensor).subspan(*cut, *std::next(cut) - *cut);
        AddRange(*cut, range, ranks[Below(3, random)]);
      }
      DigestSum sum;
      for (const DigestSum& rank : ranks) sum.Add(rank);
      ASSERT_EQ(sum, NaiveSum(tensor)) << "trial " << trial << ", grain " << grain;
      ASSERT_EQ(sum.Finish(size), TensorDigestSum(tensor));
    }
  }
}

TEST_P(AdditiveDigestOnTarget, ColumnsOfAMatrixSumToTheWhole) {
  std::mt19937_64 random(3);
  for (const int64_t row_bytes : {6, 130, 4096, 10002}) {
    const int64_t rows = 37;
    const Bytes tensor = RandomBytes(rows * row_bytes, random);
    DigestSum sum;
    for (int64_t begin = 0; begin < row_bytes;) {
      const int64_t width = std::min(row_bytes - begin, 2 * (1 + Below(row_bytes / 3, random)));
      Bytes packed;
      for (int64_t row = 0; row < rows; ++row) {
        const auto from = tensor.begin() + row * row_bytes + begin;
        packed.insert(packed.end(), from, from + width);
      }
      AddStrided(begin, row_bytes, width, packed, sum);
      begin += width;
    }
    EXPECT_EQ(sum, NaiveSum(tensor)) << "rows of " << row_bytes;
  }
}

TEST_P(AdditiveDigestOnTarget, DependsOnEveryBit) {
  std::mt19937_64 random(4);
  Bytes tensor = RandomBytes(3 * kBlockBytes + 6, random);
  const DigestSum digest = TensorDigestSum(tensor);
  for (int trial = 0; trial < 3000; ++trial) {
    const int64_t at = Below(tensor.size(), random);
    const auto bit = static_cast<std::byte>(1 << Below(8, random));
    tensor[at] ^= bit;
    ASSERT_NE(TensorDigestSum(tensor), digest) << "byte " << at;
    tensor[at] ^= bit;
  }
}

TEST_P(AdditiveDigestOnTarget, DependsOnThePlacesOfWordsAndBlocks) {
  std::mt19937_64 random(5);
  const Bytes tensor = RandomBytes(4 * kBlockBytes, random);
  const DigestSum digest = TensorDigestSum(tensor);
  for (const int64_t unit : {int64_t{2}, int64_t{4}, int64_t{64}, kBlockBytes}) {
    for (int trial = 0; trial < 1000; ++trial) {
      const int64_t units = tensor.size() / unit;
      const int64_t a = Below(units, random), b = Below(units, random);
      Bytes swapped = tensor;
      std::swap_ranges(swapped.begin() + a * unit, swapped.begin() + (a + 1) * unit,
                       swapped.begin() + b * unit);
      if (swapped == tensor) continue;
      ASSERT_NE(TensorDigestSum(swapped), digest) << unit << " bytes, " << a << " and " << b;
    }
    Bytes shifted = tensor;
    std::rotate(shifted.begin(), shifted.begin() + unit, shifted.end());
    EXPECT_NE(TensorDigestSum(shifted), digest) << "by " << unit;
  }
}

TEST_P(AdditiveDigestOnTarget, DependsOnSignsAlone) {
  // All that differs are top bits of words, where products mod 2^64 have the fewest bits left.
  std::mt19937_64 random(6);
  Bytes tensor = RandomBytes(2 * kBlockBytes, random);
  std::set<std::string> seen = {TensorDigestSum(tensor).Hex()};
  for (int trial = 0; trial < 3000; ++trial) {
    for (int flips = 0; flips < 2; ++flips) {
      tensor[Below(tensor.size() / 4, random) * 4 + 3] ^= std::byte{0x80};
    }
    seen.insert(TensorDigestSum(tensor).Hex());
  }
  EXPECT_GE(seen.size(), 2990u);  // a pair of flips of one bit is none
}

TEST_P(AdditiveDigestOnTarget, DependsOnTheSize) {
  std::mt19937_64 random(7);
  Bytes tensor = RandomBytes(100, random);
  std::set<std::string> seen;
  for (int i = 0; i < 5000; ++i) {
    seen.insert(TensorDigestSum(tensor).Hex());
    tensor.push_back(std::byte{0});
  }
  EXPECT_EQ(seen.size(), 5000u);
}

INSTANTIATE_TEST_SUITE_P(Targets, AdditiveDigestOnTarget, testing::SimdTargets(),
                         testing::SimdTargetName);

TEST(AdditiveDigest, FactorsOfALaneDiffer) {
  // So that no two words of a block can change places unseen.
  for (uint64_t lane = 0; lane < 2; ++lane) {
    std::set<uint32_t> factors;
    for (uint64_t j = 0; j < 1024; ++j) factors.insert(Factor(lane, j));
    EXPECT_EQ(factors.size(), 1024u);
  }
}

TEST(AdditiveDigest, StaysTheSame) {
  // Peers of other builds compare theirs with it.
  Bytes tensor(10000);
  for (size_t i = 0; i < tensor.size(); ++i) tensor[i] = static_cast<std::byte>(i * 7);
  EXPECT_EQ(TensorDigestSum(tensor).Hex(), "823cc18a4677b76fd1aa2fd9f1adb8f2");
  EXPECT_EQ(TensorDigestSum({}).Hex(), "86db92e833b0c1a0cfa54a6b265fbf2b");
}

TEST(AdditiveDigestDeathTest, RefusesWhatNoTensorHas) {
  DigestSum sum;
  const Bytes bytes(10);
  EXPECT_DEATH(AddRange(-2, bytes, sum), "");
  EXPECT_DEATH(AddStrided(0, 8, 4, bytes, sum), "");
}

}  // namespace
}  // namespace tandem::weights
