// The launches of the weight kernels on a CPU: lists longer than a launch takes, and the sums of a
// block's threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "common/weights/additive_digest.h"
#include "tests/fakes/simulated_grid.h"
#include "tests/support/cuda_emulation.h"
// After it.
#include "common/weights/weight_kernels.cu"

namespace tandem::weights {
namespace {

using Bytes = std::vector<std::byte>;

// More runs than two launches take.
constexpr int kRuns = 150;

Bytes RandomBytes(int64_t size, std::mt19937_64& random) {
  Bytes bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

TEST(EmulatedWeightKernels, EveryRunOfALongListIsCopied) {
  std::mt19937_64 random(1);
  const Bytes from = RandomBytes(kRuns * 100, random);
  Bytes to(from.size());
  std::vector<CopyRun> runs;
  for (int i = 0; i < kRuns; ++i) {
    // Some are empty, and some are not aligned.
    const int64_t size = i % 7 == 0 ? 0 : i % 5 == 0 ? 99 : 100;
    runs.push_back({from.data() + i * 100, to.data() + i * 100, size});
  }
  ASSERT_EQ(LaunchCopy(runs.data(), runs.size(), nullptr), cudaSuccess);
  for (const CopyRun& run : runs) {
    EXPECT_TRUE(std::equal(run.from, run.from + run.size, run.to));
    EXPECT_TRUE(std::all_of(run.to + run.size, to.data() + (run.to - to.data()) / 100 * 100 + 100,
                            [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST(EmulatedWeightKernels, EveryRunOfALongListIsCast) {
  std::mt19937_64 random(2);
  std::vector<float> from(kRuns * 30);
  for (float& value : from) value = static_cast<float>(random() % 1000) / 7.0f;
  for (const WireElement element : {WireElement::kFloat32, WireElement::kBfloat16}) {
    const int64_t bytes = WireElementBytes(element);
    Bytes found(kRuns * 30 * bytes), expected(found.size());
    std::vector<CastRun> runs;
    for (int i = 0; i < kRuns; ++i) {
      runs.push_back({from.data() + i * 30, expected.data() + i * 30 * bytes, 10, 3, 10});
    }
    testing::SimulatedGrid().Cast(element, runs);
    for (int i = 0; i < kRuns; ++i) runs[i].to = found.data() + i * 30 * bytes;
    ASSERT_EQ(LaunchCast(element, runs.data(), runs.size(), nullptr), cudaSuccess);
    EXPECT_EQ(found, expected);
  }
}

TEST(EmulatedWeightKernels, DigestsAreTheCpus) {
  std::mt19937_64 random(3);
  const Bytes whole = RandomBytes(kRuns * 900, random);
  std::vector<DigestRun> runs;
  std::vector<DigestSum> expected(3);
  for (int i = 0; i < kRuns; ++i) {
    const int64_t size = i % 9 == 0 ? 0 : 900;
    runs.push_back({whole.data() + i * 900, i * 900, 0, size, 1, i % 3});
    AddRange(i * 900, absl::MakeConstSpan(whole).subspan(i * 900, size), expected[i % 3]);
  }
  // One that takes many blocks.
  const Bytes large = RandomBytes(100'000, random);
  runs.push_back({large.data(), 4096 * 50 + 6, 0, static_cast<int64_t>(large.size()), 1, 1});
  AddRange(4096 * 50 + 6, large, expected[1]);
  std::vector<uint64_t> lanes(6);
  ASSERT_EQ(LaunchDigest(runs.data(), runs.size(), lanes.data(), nullptr), cudaSuccess);
  for (int slot = 0; slot < 3; ++slot) {
    EXPECT_EQ(lanes[2 * slot], expected[slot].lanes[0]) << slot;
    EXPECT_EQ(lanes[2 * slot + 1], expected[slot].lanes[1]) << slot;
  }
}

}  // namespace
}  // namespace tandem::weights
