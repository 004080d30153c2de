#include "common/weights/delta_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace tandem::weights {
namespace {

using Bytes = std::vector<std::byte>;

// Adds to element i of `bytes`, modulo its size.
void AddTo(Bytes& bytes, int element_size, int64_t i, uint32_t difference) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + i * element_size, element_size);
  value += difference;
  std::memcpy(bytes.data() + i * element_size, &value, element_size);
}

class Changes {
 public:
  explicit Changes(uint64_t seed) : random_(seed) {}

  Bytes Weights(int64_t size) {
    Bytes bytes(size);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random_());
    return bytes;
  }

  // Each element changes with `density`; of those that do, `large` by more than one.
  Bytes Next(const Bytes& base, int element_size, double density, double large) {
    Bytes next = base;
    std::bernoulli_distribution changes(density), is_large(large), negative(0.5);
    const int64_t elements = base.size() / element_size;
    for (int64_t i = 0; i < elements; ++i) {
      if (!changes(random_)) continue;
      const uint32_t size = is_large(random_) ? random_() >> (random_() % 32) : 1;
      AddTo(next, element_size, i, negative(random_) ? 0 - size : size);
    }
    return next;
  }

  std::mt19937_64& random() { return random_; }

 private:
  std::mt19937_64 random_;
};

Bytes Encode(const Bytes& base, const Bytes& next, int element_size) {
  Bytes coded(MaxEncodedBytes(next.size()));
  const auto stats = EncodeDelta(base, next, element_size, absl::MakeSpan(coded));
  EXPECT_TRUE(stats.ok()) << stats.status();
  EXPECT_LE(stats->coded_bytes, static_cast<int64_t>(coded.size()));
  coded.resize(stats->coded_bytes);
  return coded;
}

// Applied to a copy of `base`.
absl::StatusOr<DeltaStats> Apply(const Bytes& coded, const Bytes& base, Bytes& result) {
  result = base;
  return ApplyDelta(coded, absl::MakeSpan(result));
}

void ExpectRoundTrip(const Bytes& base, const Bytes& next, int element_size) {
  int64_t changed = 0;
  for (size_t at = 0; at < base.size(); at += element_size) {
    changed += std::memcmp(&base[at], &next[at], element_size) != 0;
  }
  Bytes result;
  const auto stats = Apply(Encode(base, next, element_size), base, result);
  ASSERT_TRUE(stats.ok()) << stats.status();
  ASSERT_TRUE(result == next);
  ASSERT_EQ(stats->changed, changed);
  ASSERT_EQ(stats->elements * element_size, static_cast<int64_t>(base.size()));
}

TEST(DeltaCodec, AppliedToTheBaseGivesTheNextVersion) {
  Changes changes(1);
  for (const int element_size : {2, 4}) {
    for (const int64_t elements : {0, 1, 2, 3, 63, 64, 65, 1023, 1024, 1025, 4097, 100003}) {
      for (const double density : {0.0, 1e-5, 1e-3, 0.03, 0.5, 0.97, 1.0}) {
        for (const double large : {0.0, 0.01, 0.4, 1.0}) {
          SCOPED_TRACE(::testing::Message() << elements << " elements of " << element_size
                                            << ", density " << density << ", large " << large);
          const Bytes base = changes.Weights(elements * element_size);
          ExpectRoundTrip(base, changes.Next(base, element_size, density, large), element_size);
        }
      }
    }
  }
}

TEST(DeltaCodec, KeepsEveryBitOfSpecialValues) {
  // From each of these to each.
  std::vector<float> floats = {0.0f, -0.0f, 1.0f, -1.0f, 1e-45f, -1e-45f, 3e38f};
  for (const float x : {INFINITY, NAN, std::numeric_limits<float>::signaling_NaN()}) {
    floats.push_back(x);
    floats.push_back(-x);
  }
  std::vector<float> from, to;
  for (const float a : floats) {
    for (const float b : floats) from.push_back(a), to.push_back(b);
  }
  const int64_t unchanged = 4096;  // so that gaps are the smaller form
  Bytes base((from.size() + unchanged) * sizeof(float)), next(base.size());
  std::memcpy(base.data(), from.data(), from.size() * sizeof(float));
  std::memcpy(next.data(), to.data(), to.size() * sizeof(float));
  for (const int element_size : {2, 4}) ExpectRoundTrip(base, next, element_size);
}

TEST(DeltaCodec, KeepsEveryDifferenceOfTwoBytes) {
  Bytes base(4 * 65536), next = base;
  for (uint32_t i = 0; i < 65536; ++i) AddTo(next, 2, i, i);
  ExpectRoundTrip(base, next, 2);
}

TEST(DeltaCodec, TakesChangesInRunsAndGapsOfAnyLength) {
  Changes changes(2);
  const Bytes base = changes.Weights(8 << 20);
  Bytes next = base;
  for (int64_t i = 0; i < 4 << 20;
       i += 1 + (changes.random()() >> (changes.random()() % 64)) % (1 << 18)) {
    for (int run = changes.random()() % 200; run > 0 && i < 4 << 20; --run, ++i)
      AddTo(next, 2, i, 1);
  }
  ExpectRoundTrip(base, next, 2);
  Bytes last = base;
  AddTo(last, 2, (4 << 20) - 1, 1);
  ExpectRoundTrip(base, last, 2);
}

TEST(DeltaCodec, LivesAtAnyAddress) {
  Changes changes(3);
  const Bytes base = changes.Weights(20001), next = changes.Next(base, 2, 0.05, 0.1);
  Bytes out(30001), buffer = base;
  const auto stats =
      EncodeDelta(absl::MakeConstSpan(base).subspan(1), absl::MakeConstSpan(next).subspan(1), 2,
                  absl::MakeSpan(out).subspan(1));
  ASSERT_TRUE(stats.ok()) << stats.status();
  const auto applied = ApplyDelta(absl::MakeConstSpan(out).subspan(1, stats->coded_bytes),
                                  absl::MakeSpan(buffer).subspan(1));
  ASSERT_TRUE(applied.ok()) << applied.status();
  EXPECT_TRUE(std::equal(buffer.begin() + 1, buffer.end(), next.begin() + 1));
}

TEST(DeltaCodec, CostsTheEntropyOfPlacesAndASign) {
  Changes changes(4);
  const Bytes base = changes.Weights(4 << 20);
  for (const double density : {0.001, 0.01, 0.03, 0.1, 0.3, 0.5}) {
    const Bytes next = changes.Next(base, 2, density, 0);
    Bytes out(MaxEncodedBytes(next.size()));
    const DeltaStats stats = *EncodeDelta(base, next, 2, absl::MakeSpan(out));
    const double p = stats.density();
    const double entropy = -std::log2(p) - (1 - p) / p * std::log2(1 - p) + 1;
    EXPECT_LT(stats.coded_bytes * 8.0, stats.changed * entropy * 1.03 + 8 * 64) << density;
  }
}

TEST(DeltaCodec, CopiesWhereNothingIsSaved) {
  Changes changes(5);
  const Bytes base = changes.Weights(400004), next = changes.Weights(400004);
  Bytes out(MaxEncodedBytes(next.size()));
  const DeltaStats stats = *EncodeDelta(base, next, 4, absl::MakeSpan(out));
  EXPECT_TRUE(stats.dense);
  EXPECT_EQ(stats.coded_bytes, static_cast<int64_t>(out.size()));
  EXPECT_GT(stats.density(), 0.999);
  ExpectRoundTrip(base, next, 4);
}

TEST(DeltaCodec, BytesAreThoseOfItsFormat) {
  // Element 3 of 40 by +1, element 5 by -3: mode 1, gaps 3 and 1, one listed.
  Bytes base(80), next(80);
  AddTo(next, 2, 3, 1);
  AddTo(next, 2, 5, 0u - 3);
  const Bytes coded = Encode(base, next, 2);
  std::string header(reinterpret_cast<const char*>(coded.data()), kDeltaHeaderBytes);
  std::string expected(kDeltaHeaderBytes, '\0');
  expected.replace(0, 6, "TND1\x02\x02");
  expected[8] = 40;
  expected[16] = 2;
  expected[24] = static_cast<char>(coded.size() - kDeltaHeaderBytes);
  EXPECT_EQ(header, expected);
  // The first bit of a byte is its lowest.
  std::string bits;
  for (size_t at = kDeltaHeaderBytes; at < coded.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit)
      bits += (static_cast<int>(coded[at]) >> bit & 1) != 0 ? '1' : '0';
  }
  EXPECT_EQ(bits,
            "10"          // mode 1
            "10000"       // parameter of the gaps: 1
            "0000000000"  // one is listed
            "00000"       // parameter of the places: 0
            "10000"       // parameter of the sizes: 1
            "1010"        // gap 3: quotient 1, remainder 1; +
            "011"         // gap 1: quotient 0, remainder 1; -
            "10"          // place 1
            "01"          // size 1: 1 + 2 = 3, of two bits
            "00");        // filled up
}

TEST(DeltaCodec, RefusesToEncodeWhatIsNoPair) {
  Bytes four(4), six(6), out(MaxEncodedBytes(6) - 1);
  const auto message = [&](const Bytes& base, const Bytes& next, int element_size) {
    const auto stats = EncodeDelta(base, next, element_size, absl::MakeSpan(out));
    EXPECT_EQ(stats.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(stats.status().message());
  };
  EXPECT_EQ(message(four, four, 8), "delta: element size: expected 2 or 4 bytes, found 8");
  EXPECT_EQ(
      message(four, six, 2),
      "delta: expected two buffers of as many whole elements of 2 bytes, found 4 and 6 bytes");
  EXPECT_EQ(
      message(six, six, 4),
      "delta: expected two buffers of as many whole elements of 4 bytes, found 6 and 6 bytes");
  EXPECT_EQ(message(six, six, 2), "delta: expected room for 38 bytes, found 37");
}

}  // namespace
}  // namespace tandem::weights
