#include "common/tokenizer/prefix_trie.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem::tokenizer {
namespace {

// The value of `key`, or kNone.
int32_t Lookup(const PrefixTrie& trie, const std::string& key) {
  int32_t node = PrefixTrie::kRoot;
  for (char byte : key) {
    node = trie.Step(node, byte);
    if (node == PrefixTrie::kNone) return PrefixTrie::kNone;
  }
  return trie.Value(node);
}

TEST(PrefixTrie, FindsItsKeysAndNoOthers) {
  const PrefixTrie trie({{"ab", 0}, {"\xC3\xA9", 1}, {"a", 2}, {"abc", 3}, {"b\x01", 4}});
  EXPECT_EQ(Lookup(trie, "a"), 2);
  EXPECT_EQ(Lookup(trie, "ab"), 0);
  EXPECT_EQ(Lookup(trie, "abc"), 3);
  EXPECT_EQ(Lookup(trie, "\xC3\xA9"), 1);
  EXPECT_EQ(Lookup(trie, "b\x01"), 4);
  for (const char* key : {"", "b", "\xC3", "abcd", "c", "\xA9"}) {
    EXPECT_EQ(Lookup(trie, key), PrefixTrie::kNone) << key;
  }
}

TEST(PrefixTrie, KeepsTheLastOfEqualKeysAndNoEmptyOne) {
  const PrefixTrie trie({{"a", 0}, {"", 1}, {"a", 2}});
  EXPECT_EQ(Lookup(trie, "a"), 2);
  EXPECT_EQ(trie.Value(PrefixTrie::kRoot), PrefixTrie::kNone);
  EXPECT_EQ(PrefixTrie().Step(PrefixTrie::kRoot, 'a'), PrefixTrie::kNone);
}

TEST(PrefixTrie, FindsEveryByteBelowANode) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  std::vector<PrefixTrie::Entry> entries;
  for (int byte = 255; byte >= 0; --byte) {
    entries.push_back({absl::string_view(bytes).substr(static_cast<size_t>(byte), 1), byte});
  }
  const PrefixTrie trie(std::move(entries));
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(Lookup(trie, std::string(1, static_cast<char>(byte))), byte);
  }
}

}  // namespace
}  // namespace tandem::tokenizer
