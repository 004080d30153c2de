#include "common/tokenizer/model.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/bpe.h"
#include "common/tokenizer/unigram.h"
#include "common/tokenizer/word_level.h"
#include "common/tokenizer/word_piece.h"

namespace tandem::tokenizer {
namespace {

// The reference tries the types in this order.
std::string UntypedModel(const nlohmann::json& model) {
  if (model.contains("merges")) return "BPE";
  if (model.contains("max_input_chars_per_word")) return "WordPiece";
  if (model.contains("vocab") && model["vocab"].is_array()) return "Unigram";
  return model.contains("unk_token") ? "WordLevel" : "BPE";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> ReadModel(const JsonNode& node) {
  RETURN_IF_ERROR(node.ExpectObject());
  ASSIGN_OR_RETURN(const std::string type, node.StringOr("type", UntypedModel(node.value())));
  if (type == "BPE") return Bpe::Read(node);
  if (type == "Unigram") return Unigram::Read(node);
  if (type == "WordPiece") return WordPiece::Read(node);
  if (type == "WordLevel") return WordLevel::Read(node);
  return node.Unimplemented(absl::StrCat("a model of type '", type,
                                         "' is not supported; BPE, Unigram, WordPiece and "
                                         "WordLevel are"));
}

}  // namespace tandem::tokenizer
