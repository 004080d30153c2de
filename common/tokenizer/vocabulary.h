// The tokens of a model and their ids.
#ifndef TANDEM_COMMON_TOKENIZER_VOCABULARY_H_
#define TANDEM_COMMON_TOKENIZER_VOCABULARY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_node.h"

namespace tandem::tokenizer {

// Immutable after Read(). Ids may be sparse; memory is proportional to the number of tokens.
class Vocabulary {
 public:
  // Reads {"token": id, ...}. InvalidArgument names the token whose id is no int32 or already
  // taken.
  static absl::StatusOr<Vocabulary> Read(const JsonNode& node);

  std::optional<int32_t> TokenToId(absl::string_view token) const;
  // Null when there is no such id. The string lives as long as the vocabulary.
  const std::string* IdToToken(int32_t id) const;
  size_t size() const { return tokens_.size(); }

 private:
  std::vector<std::string> tokens_;  // never grows after Read(): the maps point into it
  absl::flat_hash_map<absl::string_view, int32_t> ids_;
  absl::flat_hash_map<int32_t, const std::string*> by_id_;
};

// Splits a piece of pre-tokenized text into ids. Thread-safe.
class Model {
 public:
  virtual ~Model() = default;
  // Appends the ids of `piece`, valid UTF-8.
  virtual absl::Status Tokenize(absl::string_view piece, std::vector<int32_t>* ids) const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
};

// Reads the "model" of tokenizer.json. Unimplemented names a type other than BPE or WordLevel.
absl::StatusOr<std::unique_ptr<Model>> ReadModel(const JsonNode& node);

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_VOCABULARY_H_
