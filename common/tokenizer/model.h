// The "model" of tokenizer.json: splits a piece of text into tokens.
#ifndef TANDEM_COMMON_TOKENIZER_MODEL_H_
#define TANDEM_COMMON_TOKENIZER_MODEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/vocabulary.h"

namespace tandem::tokenizer {

// Thread-safe.
class Model {
 public:
  virtual ~Model() = default;
  // Appends the ids of `piece`, valid UTF-8.
  virtual absl::Status Tokenize(absl::string_view piece, std::vector<int32_t>* ids) const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
};

// Supports BPE, Unigram, WordPiece and WordLevel; Unimplemented names another type. A file that
// predates the type field has the type that its other fields tell.
absl::StatusOr<std::unique_ptr<Model>> ReadModel(const JsonNode& node);

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_MODEL_H_
