// Finds the keys that start at a place in a text, one byte at a time.
//
// A node's children lie side by side, ordered by their byte: 13 bytes a node, some 25 MB for
// a vocabulary of 250,000 tokens.
#ifndef TANDEM_COMMON_TOKENIZER_PREFIX_TRIE_H_
#define TANDEM_COMMON_TOKENIZER_PREFIX_TRIE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_node.h"

namespace tandem::tokenizer {

// Immutable; any thread may search.
class PrefixTrie {
 public:
  struct Entry {
    absl::string_view key;
    int32_t value;  // 0 or more
  };
  static constexpr int32_t kRoot = 0;
  static constexpr int32_t kNone = -1;

  // A trie without keys.
  PrefixTrie() : PrefixTrie(std::vector<Entry>()) {}
  // Keeps no view of the keys. Of equal keys the last wins; an empty key is never found.
  explicit PrefixTrie(std::vector<Entry> entries);

  bool empty() const { return nodes_.size() == 1; }
  // The node behind `byte`, or kNone. `node` is a node of this trie.
  int32_t Step(int32_t node, char byte) const;
  // The value of the key that ends at `node`, or kNone.
  int32_t Value(int32_t node) const { return nodes_[static_cast<size_t>(node)].value; }

 private:
  struct Node {
    int32_t first_child = 0;
    int32_t value = kNone;
    uint16_t num_children = 0;
  };
  std::vector<Node> nodes_;
  std::vector<unsigned char> bytes_;  // [node]: the byte that leads to it
};

// Bounds the memory of a trie of the tokens `keys`, and the time of a search: InvalidArgument names
// `vocab`, their place, when one has more than 1024 bytes or all have more than 32 MiB.
absl::Status CheckTrieKeys(const std::vector<std::string>& keys, const JsonNode& vocab);

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_PREFIX_TRIE_H_
