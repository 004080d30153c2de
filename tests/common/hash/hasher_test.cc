#include "common/hash/hasher.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem::hash {
namespace {

// Known from xxhsum -H2.
constexpr char kOfNothing[] = "99aa06d3014798d86001c324468d497f";

TEST(Hasher, IsXxh3Of128Bits) {
  EXPECT_EQ(HexDigest(""), kOfNothing);
  EXPECT_EQ(HexDigest(absl::Span<const std::byte>()), kOfNothing);
  EXPECT_EQ(Hasher().Hex(), kOfNothing);
}

TEST(Hasher, DependsOnEveryBitAndOnPositions) {
  std::string text(1000, 'a');
  const std::string digest = HexDigest(text);
  std::string flipped = text;
  flipped[999] ^= 1;
  EXPECT_NE(HexDigest(flipped), digest);
  EXPECT_NE(HexDigest("ab" + text), HexDigest("ba" + text));
}

TEST(Hasher, IsTheSameHoweverTheBytesAreCut) {
  const std::string bytes(3 << 20, 'x');
  Hasher pieces;
  for (size_t begin = 0; begin < bytes.size(); begin += 12345) {
    pieces.Update(absl::string_view(bytes).substr(begin, 12345));
  }
  EXPECT_EQ(pieces.Hex(), HexDigest(bytes));
  pieces.Update("y");
  EXPECT_NE(pieces.Hex(), HexDigest(bytes));
  pieces.Reset();
  EXPECT_EQ(pieces.Hex(), kOfNothing);
}

}  // namespace
}  // namespace tandem::hash
