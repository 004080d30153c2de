#include "common/tokenizer/word_piece.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/unicode.h"

namespace tandem::tokenizer {
namespace {

constexpr int64_t kMaxCharacters = 100;  // of a word, by default

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> WordPiece::Read(const JsonNode& node) {
  ASSIGN_OR_RETURN(const JsonNode vocab, node.Field("vocab"));
  ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::Read(vocab));
  RETURN_IF_ERROR(CheckTrieKeys(vocabulary.tokens(), vocab));
  auto model = std::unique_ptr<WordPiece>(new WordPiece(std::move(vocabulary)));
  std::vector<PrefixTrie::Entry> entries;
  entries.reserve(model->vocabulary_.size());
  for (const std::string& token : model->vocabulary_.tokens()) {
    entries.push_back({token, *model->vocabulary_.TokenToId(token)});
  }
  model->trie_ = PrefixTrie(std::move(entries));
  ASSIGN_OR_RETURN(const std::string prefix, node.StringOr("continuing_subword_prefix", "##"));
  model->continuing_ = PrefixTrie::kRoot;
  for (char byte : prefix) {
    model->continuing_ = model->trie_.Step(model->continuing_, byte);
    if (model->continuing_ == PrefixTrie::kNone) break;
  }
  ASSIGN_OR_RETURN(model->unk_token_, node.StringOr("unk_token", "[UNK]"));
  model->unk_id_ = model->vocabulary_.TokenToId(model->unk_token_);
  int64_t max_characters = kMaxCharacters;
  ASSIGN_OR_RETURN(const std::optional<JsonNode> max_node, node.Find("max_input_chars_per_word"));
  if (max_node.has_value()) {
    ASSIGN_OR_RETURN(max_characters, max_node->Int(0, std::numeric_limits<int32_t>::max()));
  }
  model->max_characters_ = static_cast<size_t>(max_characters);
  return std::unique_ptr<Model>(std::move(model));
}

bool WordPiece::Match(absl::string_view word, std::vector<int32_t>* ids) const {
  for (size_t begin = 0; begin < word.size();) {
    int32_t node = begin == 0 ? PrefixTrie::kRoot : continuing_;
    int32_t longest = PrefixTrie::kNone;
    size_t end = begin;
    for (size_t i = begin; i < word.size() && node != PrefixTrie::kNone;) {
      node = trie_.Step(node, word[i++]);
      if (node == PrefixTrie::kNone || trie_.Value(node) == PrefixTrie::kNone) continue;
      longest = trie_.Value(node);
      end = i;
    }
    if (longest == PrefixTrie::kNone) return false;
    ids->push_back(longest);
    begin = end;
  }
  return true;
}

absl::Status WordPiece::Tokenize(absl::string_view piece, std::vector<int32_t>* ids) const {
  const size_t before = ids->size();
  if (CountCodePoints(piece) <= max_characters_ && Match(piece, ids)) return absl::OkStatus();
  ids->resize(before);
  if (!unk_id_.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", piece.substr(0, ValidUtf8Prefix(piece.substr(0, 80))),
                     "' cannot be split into tokens, and model.unk_token '", unk_token_,
                     "' of tokenizer.json is not in the vocabulary"));
  }
  ids->push_back(*unk_id_);
  return absl::OkStatus();
}

}  // namespace tandem::tokenizer
