// BERT's tokenizer model: the longest token that starts a word, then the longest that continues it.
#ifndef TANDEM_COMMON_TOKENIZER_WORD_PIECE_H_
#define TANDEM_COMMON_TOKENIZER_WORD_PIECE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/model.h"
#include "common/tokenizer/prefix_trie.h"
#include "common/tokenizer/vocabulary.h"

namespace tandem::tokenizer {

// A word that its tokens do not cover, or that is too long, is one unknown token. Thread-safe.
class WordPiece : public Model {
 public:
  // Reads the "model" of tokenizer.json.
  static absl::StatusOr<std::unique_ptr<Model>> Read(const JsonNode& node);

  absl::Status Tokenize(absl::string_view piece, std::vector<int32_t>* ids) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  explicit WordPiece(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  // Appends the tokens of the word; false, with some of them appended, if they do not cover it.
  bool Match(absl::string_view word, std::vector<int32_t>* ids) const;

  const Vocabulary vocabulary_;
  PrefixTrie trie_;
  int32_t continuing_ = PrefixTrie::kNone;  // the node behind continuing_subword_prefix
  size_t max_characters_ = 0;
  std::string unk_token_;
  std::optional<int32_t> unk_id_;
};

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_WORD_PIECE_H_
