// The "added_tokens" of tokenizer.json: tokens that are cut out of the text before the model sees
// it.
#ifndef TANDEM_COMMON_TOKENIZER_ADDED_TOKENS_H_
#define TANDEM_COMMON_TOKENIZER_ADDED_TOKENS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/normalizer.h"
#include "common/tokenizer/prefix_trie.h"
#include "common/tokenizer/regex.h"
#include "common/tokenizer/vocabulary.h"

namespace tandem::tokenizer {

struct AddedToken {
  std::string content;
  bool single_word = false;  // not inside a word
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
  bool normalized = false;   // matched in normalized text, by its normalized content
  bool special = false;      // omitted from decoded text on request

  bool operator==(const AddedToken&) const = default;
};

// A part of a text: an added token, or the text between two.
struct Segment {
  Match range;
  std::optional<int32_t> id;
};

// Immutable after Read().
class AddedTokens {
 public:
  AddedTokens() = default;
  // A token in the model's vocabulary keeps its id; others get the next free one, whatever id the
  // file names, like in the reference. `normalizer` may be null.
  static absl::StatusOr<AddedTokens> Read(const JsonNode& node, const Vocabulary& vocabulary,
                                          const Normalizer* normalizer);

  // Cuts raw text at the tokens that are not normalized, or normalized text at those that are.
  std::vector<Segment> Cut(absl::string_view text, bool normalized) const;

  std::optional<int32_t> TokenToId(absl::string_view content) const;
  const AddedToken* IdToToken(int32_t id) const;
  bool IsSpecial(absl::string_view content) const { return specials_.contains(content); }
  // The token as the decoder receives it: a normalized token in its normalized form. Null if no
  // added token has the id.
  const std::string* DecodedForm(int32_t id) const;
  // Number of added tokens outside the model's vocabulary.
  size_t num_beyond_model() const { return num_beyond_model_; }

 private:
  // INVALID_ARGUMENT if no id is left for the token.
  absl::Status Add(const AddedToken& token, const Vocabulary& vocabulary);

  absl::flat_hash_map<std::string, int32_t> ids_;
  absl::flat_hash_map<int32_t, AddedToken> by_id_;
  absl::flat_hash_map<int32_t, std::string> normalized_content_;
  absl::flat_hash_set<std::string> specials_;
  std::vector<AddedToken> special_order_;
  std::vector<AddedToken> classic_order_;
  std::optional<int32_t> max_id_;
  size_t num_beyond_model_ = 0;
  PrefixTrie raw_, normalized_;  // ids by content
};

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_ADDED_TOKENS_H_
