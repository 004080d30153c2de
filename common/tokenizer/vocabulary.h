// The tokens of a model and their ids.
#ifndef TANDEM_COMMON_TOKENIZER_VOCABULARY_H_
#define TANDEM_COMMON_TOKENIZER_VOCABULARY_H_

#include <array>
#include <cstdint>
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
  // Gives each token its position as id. Of equal tokens the last is found by its text, as in the
  // reference.
  static Vocabulary FromList(std::vector<std::string> tokens);

  std::optional<int32_t> TokenToId(absl::string_view token) const;
  // Null when there is no such id. The string lives as long as the vocabulary.
  const std::string* IdToToken(int32_t id) const;
  size_t size() const { return tokens_.size(); }
  // In no order.
  const std::vector<std::string>& tokens() const { return tokens_; }
  // [byte]: the id of its token "<0x0A>", or -1.
  std::array<int32_t, 256> ByteTokenIds() const;

 private:
  std::vector<std::string> tokens_;  // never grows after Read(): the maps point into it
  absl::flat_hash_map<absl::string_view, int32_t> ids_;
  absl::flat_hash_map<int32_t, const std::string*> by_id_;
};

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_VOCABULARY_H_
