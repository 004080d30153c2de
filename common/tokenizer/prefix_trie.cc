#include "common/tokenizer/prefix_trie.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tandem::tokenizer {
namespace {

// SentencePiece's tokens have at most 16 characters by default, BERT's words 100.
constexpr size_t kMaxKeyBytes = 1024;
// A node for each takes 13 bytes, and 24 while the trie is built: less than 600 MiB while vectors
// grow. A vocabulary of 250,000 tokens has some 2 MiB.
constexpr size_t kMaxAllKeysBytes = size_t{8} << 20;

}  // namespace

absl::Status CheckTrieKeys(const std::vector<std::string>& keys, const JsonNode& vocab) {
  size_t total_bytes = 0;
  for (const std::string& key : keys) {
    total_bytes += key.size();
    if (key.size() > kMaxKeyBytes) {
      return vocab.Error(absl::StrCat("a token of ", key.size(), " bytes; at most ", kMaxKeyBytes));
    }
  }
  if (total_bytes <= kMaxAllKeysBytes) return absl::OkStatus();
  return vocab.Error(
      absl::StrCat("the tokens have ", total_bytes, " bytes; at most ", kMaxAllKeysBytes));
}

PrefixTrie::PrefixTrie(std::vector<Entry> entries) : nodes_(1), bytes_(1) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.key < b.key; });
  // The entries below a node: they share its first `depth` bytes.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges{{0, entries.size(), 0}};  // [node]
  for (size_t node = 0; node < nodes_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    for (; begin < end && entries[begin].key.size() == depth; ++begin) {
      if (depth > 0) nodes_[node].value = entries[begin].value;
    }
    nodes_[node].first_child = static_cast<int32_t>(nodes_.size());
    while (begin < end) {
      const char byte = entries[begin].key[depth];
      size_t next = begin + 1;
      while (next < end && entries[next].key[depth] == byte) ++next;
      ++nodes_[node].num_children;
      nodes_.emplace_back();
      bytes_.push_back(static_cast<unsigned char>(byte));
      ranges.push_back({begin, next, depth + 1});
      begin = next;
    }
  }
}

int32_t PrefixTrie::Step(int32_t node, char byte) const {
  const Node& parent = nodes_[static_cast<size_t>(node)];
  const auto first = bytes_.begin() + parent.first_child;
  const auto last = first + parent.num_children;
  const auto wanted = static_cast<unsigned char>(byte);
  const auto found = std::lower_bound(first, last, wanted);
  if (found == last || *found != wanted) return kNone;
  return static_cast<int32_t>(found - bytes_.begin());
}

}  // namespace tandem::tokenizer
