#include "common/tokenizer/word_level.h"

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::tokenizer {

WordLevel::WordLevel(Vocabulary vocabulary, std::string unk_token)
    : vocabulary_(std::move(vocabulary)),
      unk_token_(std::move(unk_token)),
      unk_id_(vocabulary_.TokenToId(unk_token_)) {}

absl::StatusOr<std::unique_ptr<Model>> WordLevel::Read(const JsonNode& node) {
  ASSIGN_OR_RETURN(const JsonNode vocab, node.Field("vocab"));
  ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::Read(vocab));
  ASSIGN_OR_RETURN(std::string unk_token, node.StringOr("unk_token", "<unk>"));
  return std::unique_ptr<Model>(new WordLevel(std::move(vocabulary), std::move(unk_token)));
}

absl::Status WordLevel::Tokenize(absl::string_view piece, std::vector<int32_t>* ids) const {
  if (const auto id = vocabulary_.TokenToId(piece)) {
    ids->push_back(*id);
  } else if (unk_id_.has_value()) {
    ids->push_back(*unk_id_);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("'", piece, "' is not in the vocabulary, nor is model.unk_token '", unk_token_,
                     "' of tokenizer.json"));
  }
  return absl::OkStatus();
}

}  // namespace tandem::tokenizer
