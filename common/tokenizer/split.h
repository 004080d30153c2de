// Splits text at matches, in the five ways of tokenizer.json.
#ifndef TANDEM_COMMON_TOKENIZER_SPLIT_H_
#define TANDEM_COMMON_TOKENIZER_SPLIT_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/regex.h"

namespace tandem::tokenizer {

// What happens to the delimiter. "the-final--countdown" at '-' gives
enum class SplitBehavior {
  kRemoved,             // the final countdown
  kIsolated,            // the - final - - countdown
  kMergedWithPrevious,  // the- final- - countdown
  kMergedWithNext,      // the -final - -countdown
  kContiguous,          // the - final -- countdown
};

absl::StatusOr<SplitBehavior> ReadSplitBehavior(const JsonNode& node);

// Appends to `*out` the pieces of the range `whole`, given the delimiters inside it (ordered,
// disjoint). `invert` swaps delimiters and the text between them. Omits empty pieces.
void SplitRange(Match whole, const std::vector<Match>& delimiters, SplitBehavior behavior,
                bool invert, std::vector<Match>* out);

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_SPLIT_H_
