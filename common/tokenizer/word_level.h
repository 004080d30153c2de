// One id for each whole piece.
#ifndef TANDEM_COMMON_TOKENIZER_WORD_LEVEL_H_
#define TANDEM_COMMON_TOKENIZER_WORD_LEVEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/vocabulary.h"

namespace tandem::tokenizer {

// A piece that is not in the vocabulary is the unknown token; InvalidArgument where there is none.
class WordLevel : public Model {
 public:
  static absl::StatusOr<std::unique_ptr<Model>> Read(const JsonNode& node);

  absl::Status Tokenize(absl::string_view piece, std::vector<int32_t>* ids) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  WordLevel(Vocabulary vocabulary, std::string unk_token);

  const Vocabulary vocabulary_;
  const std::string unk_token_;
  const std::optional<int32_t> unk_id_;
};

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_WORD_LEVEL_H_
