// Deltas that arrive broken.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/weights/delta_codec.h"

namespace tandem::weights {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int64_t kElements = 3000;
constexpr int64_t kGuardBytes = 64;

// A delta of 3000 elements, some 300 of which changed, some by much.
struct Sample {
  explicit Sample(int element_size, int divisor = 10)
      : base(kElements * element_size), next(base), coded(MaxEncodedBytes(base.size())) {
    std::mt19937_64 random(element_size);
    for (int64_t i = 0; i < kElements; ++i) {
      if (random() % divisor == 0) next[i * element_size] = static_cast<std::byte>(random() % 3);
    }
    coded.resize(EncodeDelta(base, next, element_size, absl::MakeSpan(coded))->coded_bytes);
  }
  Bytes base, next, coded;
};

// Applies to the middle of memory whose ends must stay.
absl::Status ApplyDamaged(absl::Span<const std::byte> coded, const Bytes& base) {
  // A copy of exactly that size: the address sanitizer sees who reads beyond.
  const Bytes message(coded.begin(), coded.end());
  Bytes memory(base.size() + 2 * kGuardBytes, std::byte{0xA5});
  std::copy(base.begin(), base.end(), memory.begin() + kGuardBytes);
  const auto stats = ApplyDelta(message, absl::MakeSpan(memory).subspan(kGuardBytes, base.size()));
  for (int64_t i = 0; i < kGuardBytes; ++i) {
    EXPECT_EQ(memory[i], std::byte{0xA5});
    EXPECT_EQ(memory[memory.size() - 1 - i], std::byte{0xA5});
  }
  return stats.status();
}

template <typename T>
Bytes With(Bytes coded, int64_t at, T value) {
  std::memcpy(coded.data() + at, &value, sizeof(value));
  return coded;
}

bool IsRefusal(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInvalidArgument ||
         status.code() == absl::StatusCode::kDataLoss;
}

TEST(DeltaCorruption, EveryTruncationIsRefused) {
  for (const int element_size : {2, 4}) {
    for (const int divisor : {10, 1, 100000}) {
      const Sample sample(element_size, divisor);
      for (size_t size = 0; size < sample.coded.size(); ++size) {
        Bytes cut(sample.coded.begin(), sample.coded.begin() + size);
        ASSERT_EQ(ApplyDamaged(cut, sample.base).code(), absl::StatusCode::kDataLoss) << size;
        // Nor does a header help that says so.
        if (size < static_cast<size_t>(kDeltaHeaderBytes)) continue;
        const absl::Status status =
            ApplyDamaged(With(cut, 24, uint64_t{size - kDeltaHeaderBytes}), sample.base);
        ASSERT_TRUE(IsRefusal(status)) << size << ": " << status;
      }
    }
  }
}

TEST(DeltaCorruption, NoFlippedBitLeadsOutOfTheBuffer) {
  for (const int element_size : {2, 4}) {
    for (const int divisor : {10, 1, 500}) {
      const Sample sample(element_size, divisor);
      Bytes coded = sample.coded;
      for (size_t at = 0; at < coded.size(); ++at) {
        for (int flipped = 1; flipped < 256; flipped = flipped * 2 + flipped % 2) {
          coded[at] ^= static_cast<std::byte>(flipped);
          const absl::Status status = ApplyDamaged(coded, sample.base);
          ASSERT_TRUE(status.ok() || IsRefusal(status)) << status;
          coded[at] ^= static_cast<std::byte>(flipped);
        }
      }
    }
  }
}

TEST(DeltaCorruption, NoNoiseLeadsOutOfTheBuffer) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 20000; ++trial) {
    const Sample sample(2, 100000);
    Bytes coded = sample.coded;
    coded.resize(kDeltaHeaderBytes + random() % 100);
    // Ones in runs: long codes.
    const auto mostly = random() % 2 != 0 ? random() | random() : random();
    for (size_t i = kDeltaHeaderBytes; i < coded.size(); ++i) {
      coded[i] = static_cast<std::byte>(random() | (trial % 3 == 0 ? mostly : 0));
    }
    coded = With(coded, 16, uint64_t{random() % kElements});
    coded = With(coded, 24, uint64_t{coded.size() - kDeltaHeaderBytes});
    const absl::Status status = ApplyDamaged(coded, sample.base);
    ASSERT_TRUE(status.ok() || IsRefusal(status)) << status;
  }
}

TEST(DeltaCorruption, SaysWhatIsWrongInTheHeader) {
  const Sample sample(2);
  const Bytes& coded = sample.coded;
  const auto message = [&](const Bytes& bytes) {
    const absl::Status status = ApplyDamaged(bytes, sample.base);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(message(With(coded, 0, uint32_t{0x10})),
            "delta: header: magic: expected 0x31444e54, found 0x10");
  EXPECT_EQ(message(With(coded, 4, uint8_t{3})),
            "delta: header: codec: expected 1 (dense) or 2 (gaps), found 3");
  EXPECT_EQ(message(With(coded, 5, uint8_t{8})),
            "delta: header: element size: expected 2 or 4 bytes, found 8");
  EXPECT_EQ(message(With(coded, 5, uint8_t{4})),
            "delta: header: elements: expected those of 6000 bytes in elements of 4, found 3000");
  EXPECT_EQ(message(With(coded, 6, uint16_t{1})),
            "delta: header: bytes 6 and 7: expected 0, found 1");
  EXPECT_EQ(message(With(coded, 8, uint64_t{1} << 63)),
            "delta: header: elements: expected those of 6000 bytes in elements of 2, found "
            "9223372036854775808");
  EXPECT_EQ(message(With(coded, 16, uint64_t{3001})),
            "delta: header: changed elements: expected at most 3000, found 3001");
  EXPECT_EQ(message(With(coded, 4, uint8_t{1})),
            absl::StrCat("delta: header: payload of a dense delta: expected 6000 bytes, found ",
                         coded.size() - kDeltaHeaderBytes));
}

TEST(DeltaCorruption, SaysWhereAPayloadBreaks) {
  Bytes base(200), next(200);
  next[100] = std::byte{1};
  Bytes coded(MaxEncodedBytes(200));
  coded.resize(EncodeDelta(base, next, 2, absl::MakeSpan(coded))->coded_bytes);
  const auto message = [&](const Bytes& bytes) {
    const absl::Status status = ApplyDamaged(bytes, base);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    return std::string(status.message());
  };
  // One change after a gap of 50 with parameter 5: 2 + 5 + 2 + 5 + 1 bits.
  ASSERT_EQ(coded.size(), kDeltaHeaderBytes + 2u);
  const auto payload = [&](std::vector<int> bytes) {
    Bytes result(coded.begin(), coded.begin() + kDeltaHeaderBytes);
    for (const int b : bytes) result.push_back(static_cast<std::byte>(b));
    return With(result, 24, uint64_t{bytes.size()});
  };
  Bytes longer = coded;
  longer.push_back({});
  EXPECT_EQ(message(longer),
            "delta: expected a payload of 2 bytes, as stated in the header, found 3");
  EXPECT_EQ(
      message(With(longer, 24, uint64_t{3})),
      "delta: expected the last of 1 changes and zeros at the end of the payload, byte 3, found "
      "it at bit 15");
  EXPECT_EQ(message(payload({3, 0})),
            "delta: changes starting at number 0 of 1, at bit 0 of the payload: mode: expected 0, "
            "1 or 2, found 3");
  EXPECT_EQ(message(payload({})),
            "delta: changes starting at number 0 of 1, at bit 0 of the payload: expected 1 "
            "changes, found the end of the payload, 0 bytes");
  // Parameter 6: 2 ones, a zero and six more bits.
  EXPECT_EQ(message(payload({6 << 2 | 0x80, 0x01, 0})),
            "delta: changes starting at number 0 of 1, at bit 0 of the payload: expected changes "
            "of 100 elements, found one of element 128");
  // 16 ones, and a width of 63.
  EXPECT_EQ(message(payload({0x80, 0xFF, 0xFF, 0x1F, 0, 0, 0})),
            "delta: changes starting at number 0 of 1, at bit 0 of the payload: change 0: expected "
            "a gap of less than 2^47 elements, found more");
  EXPECT_EQ(
      message(With(coded, kDeltaHeaderBytes + 1,
                   static_cast<uint8_t>(static_cast<uint8_t>(coded.back()) | 0x80))),
      "delta: expected the last of 1 changes and zeros at the end of the payload, byte 2, found "
      "it at bit 15");
}

}  // namespace
}  // namespace tandem::weights
