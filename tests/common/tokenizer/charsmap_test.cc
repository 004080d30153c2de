#include "common/tokenizer/charsmap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "common/tokenizer/growth.h"
#include "common/tokenizer/unicode.h"
#include "tests/support/status_matchers.h"

namespace tandem::tokenizer {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

constexpr absl::StatusCode kDamaged = absl::StatusCode::kInvalidArgument;
constexpr size_t kMaxBytes = 1 << 16;

void AppendWord(uint32_t word, std::string* out) {
  for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<char>(word >> shift));
}

std::string Blob(const std::vector<uint32_t>& units, const std::string& table) {
  std::string blob;
  AppendWord(static_cast<uint32_t>(units.size() * 4), &blob);
  for (uint32_t unit : units) AppendWord(unit, &blob);
  return blob + table;
}

// A trie with one key, "A". The root leads to unit 0x100 ^ 'A', that to its leaf.
constexpr size_t kNode = 0x100 ^ 'A', kLeaf = kNode ^ 1;
std::vector<uint32_t> UnitsOfA(uint32_t value) {
  std::vector<uint32_t> units(0x200, 0);
  units[0] = 0x100 << 10;
  units[kNode] = 1 << 10 | 1 << 8 | 'A';
  units[kLeaf] = value;
  return units;
}

const std::string kTable("x\0bc\0", 5);

absl::StatusOr<std::string> NormalizeWith(const std::string& blob, absl::string_view text) {
  const absl::StatusOr<Charsmap> map = Charsmap::Parse(blob);
  if (!map.ok()) return map.status();
  return map->Normalize(text, kMaxBytes);
}

TEST(Charsmap, ReplacesItsKeys) {
  const std::string blob = Blob(UnitsOfA(2), kTable);
  EXPECT_THAT(NormalizeWith(blob, "xAyA"), IsOkAndHolds("xbcybc"));
  EXPECT_THAT(NormalizeWith(blob, ""), IsOkAndHolds(""));
  EXPECT_THAT(NormalizeWith(blob, absl::string_view("\0A", 2)),
              IsOkAndHolds(std::string("\0bc", 3)));
  EXPECT_THAT(NormalizeWith(Blob(UnitsOfA(5), kTable), "xA"), IsOkAndHolds("x"));
}

TEST(Charsmap, DropsTheRestOfAShortGraphemeOnly) {
  const std::string blob = Blob(UnitsOfA(2), kTable);
  EXPECT_THAT(NormalizeWith(blob, "A\u0301\u0302."), IsOkAndHolds("bc."));
  EXPECT_THAT(NormalizeWith(blob, "A\u0301\u0302\u0303."), IsOkAndHolds("bc\u0301\u0302\u0303."));
}

TEST(Charsmap, RefusesABlobWhosePartsDoNotFit) {
  for (const std::string& blob : {std::string(), std::string("\1\0\0", 3), std::string(4, '\0'),
                                  std::string("\4\0\0\0abc", 7), std::string("\3\0\0\0abcd", 8),
                                  std::string("\xFF\xFF\xFF\xFF....", 8)}) {
    EXPECT_THAT(Charsmap::Parse(blob).status(), StatusIs(kDamaged, HasSubstr("damaged")));
  }
  EXPECT_THAT(Charsmap::Parse(Blob(UnitsOfA(0), "\xFF")).status(),
              StatusIs(kDamaged, HasSubstr("not UTF-8")));
}

TEST(Charsmap, RefusesATrieThatPointsOutside) {
  std::vector<uint32_t> far_root = UnitsOfA(2);
  far_root[0] = 0x400 << 10;
  EXPECT_THAT(NormalizeWith(Blob(far_root, kTable), "A"),
              StatusIs(kDamaged, HasSubstr("outside of itself")));
  std::vector<uint32_t> far_leaf = UnitsOfA(2);
  far_leaf[kNode] = 0x400 << 10 | 1 << 8 | 'A';
  EXPECT_THAT(NormalizeWith(Blob(far_leaf, kTable), "A"),
              StatusIs(kDamaged, HasSubstr("outside of itself")));
  EXPECT_THAT(NormalizeWith(Blob(UnitsOfA(6), kTable), "A"),
              StatusIs(kDamaged, HasSubstr("outside of its strings")));
  // Inside a character.
  EXPECT_THAT(NormalizeWith(Blob(UnitsOfA(1), "\u00e9"), "A"),
              StatusIs(kDamaged, HasSubstr("outside of its strings")));
}

TEST(Charsmap, SurvivesDamage) {
  std::mt19937 random(1);
  const std::string good = Blob(UnitsOfA(2), kTable + "\u00e9\u4e2d");
  for (int round = 0; round < 2000; ++round) {
    std::string bad = good;
    for (int i = 0; i < 3; ++i) {
      const size_t at = 4 + (random() % 2 == 0 ? random() % 4 : kNode * 4 - 8 + random() % 16);
      bad[at] = static_cast<char>(random());
    }
    const absl::StatusOr<std::string> text = NormalizeWith(bad, "xA\u0301A\u4e2d");
    if (text.ok()) {
      EXPECT_OK(ValidateUtf8(*text));
    } else {
      EXPECT_EQ(text.status().code(), kDamaged) << text.status();
    }
  }
}

TEST(Charsmap, StopsAtTheLimit) {
  ASSERT_OK_AND_ASSIGN(const Charsmap map,
                       Charsmap::Parse(Blob(UnitsOfA(0), std::string(1000, 'z'))));
  EXPECT_THAT(map.Normalize("AAAA", 4000), IsOkAndHolds(std::string(4000, 'z')));
  EXPECT_THAT(map.Normalize("AAAA", 3999),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("normalizer Precompiled")));
}

}  // namespace
}  // namespace tandem::tokenizer
