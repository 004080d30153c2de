// The "pre_tokenizer" of tokenizer.json: cuts normalized text into the pieces that the model sees.
#ifndef TANDEM_COMMON_TOKENIZER_PRE_TOKENIZER_H_
#define TANDEM_COMMON_TOKENIZER_PRE_TOKENIZER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/growth.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/regex.h"

namespace tandem::tokenizer {

// Text and its pieces, in order. Cutting changes `pieces`; rewriting replaces `text` too. Text
// outside the pieces has been dropped.
struct Pieces {
  std::string text;
  std::vector<Match> pieces;
  // `text` starts where the whole input does, not after an added token.
  bool starts_input = false;
  // Size up to which `text` may grow.
  size_t max_bytes = kMaxGrownBytes;

  absl::string_view operator[](size_t i) const {
    return absl::string_view(text).substr(pieces[i].begin, pieces[i].end - pieces[i].begin);
  }
};

// Immutable; any thread may call Apply().
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // RESOURCE_EXHAUSTED names a rule that expands the text too much.
  virtual absl::Status Apply(Pieces* pieces) const = 0;
};

// Supports ByteLevel, Split, Whitespace, WhitespaceSplit, Metaspace, Digits, Punctuation,
// BertPreTokenizer, CharDelimiterSplit, FixedLength and Sequence; Unimplemented names others.
absl::StatusOr<std::unique_ptr<PreTokenizer>> ReadPreTokenizer(const JsonNode& node, int depth = 0);

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_PRE_TOKENIZER_H_
