// The "normalizer" of tokenizer.json: rewrites text before it is split.
#ifndef TANDEM_COMMON_TOKENIZER_NORMALIZER_H_
#define TANDEM_COMMON_TOKENIZER_NORMALIZER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/growth.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/regex.h"

namespace tandem::tokenizer {

// Immutable; any thread may call Apply().
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Rewrites `*text`, valid UTF-8 before and after. RESOURCE_EXHAUSTED names the rule that expands
  // it beyond MaxBytesFrom() its size.
  absl::Status Apply(std::string* text) const { return Rewrite(text, MaxBytesFrom(text->size())); }

  // Does the same, up to `max_bytes`.
  virtual absl::Status Rewrite(std::string* text, size_t max_bytes) const = 0;
};

// Supports NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace, BertNormalizer,
// Precompiled, Nmt, ByteLevel and Sequence; Unimplemented names others.
absl::StatusOr<std::unique_ptr<Normalizer>> ReadNormalizer(const JsonNode& node, int depth = 0);

// Reads a pattern such as {"String": "..."} or {"Regex": "..."}.
absl::StatusOr<Regex> ReadPattern(const JsonNode& node);

// Most levels that Sequences may nest.
inline constexpr int kMaxSequenceDepth = 16;

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_NORMALIZER_H_
