// A tokenizer model that maps each whole piece to one id.
#ifndef TANDEM_COMMON_TOKENIZER_WORD_LEVEL_H_
#define TANDEM_COMMON_TOKENIZER_WORD_LEVEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/model.h"
#include "common/tokenizer/vocabulary.h"

namespace tandem::tokenizer {

// Maps an unlisted piece to the unknown token; InvalidArgument if there is none.
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
