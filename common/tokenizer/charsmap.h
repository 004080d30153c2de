// SentencePiece's precompiled character map, the "Precompiled" normalizer of tokenizer.json: short
// strings and their replacements.
//
//   ASSIGN_OR_RETURN(Charsmap map, Charsmap::Parse(blob));
//   ASSIGN_OR_RETURN(std::string text, map.Normalize("ｱ①", /*max_bytes=*/1024));  // "ア1"
//
// The blob: the size of a double-array trie in bytes (uint32, little-endian), the trie (uint32
// units, as Darts-clone lays them out), then a table of NUL-terminated UTF-8 strings. A key's value
// is the offset of its replacement in the table.
#ifndef TANDEM_COMMON_TOKENIZER_CHARSMAP_H_
#define TANDEM_COMMON_TOKENIZER_CHARSMAP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::tokenizer {

// Immutable; any thread may call Normalize().
class Charsmap {
 public:
  // InvalidArgument when the sizes do not fit together or the table is not UTF-8.
  static absl::StatusOr<Charsmap> Parse(absl::string_view blob);

  // Replaces, like the reference, each grapheme of less than 6 bytes by the replacement of the
  // shortest key that it starts with (and so drops its rest); in the others, each character that is
  // a key. ResourceExhausted beyond `max_bytes`; InvalidArgument when the trie points outside of
  // itself or of the table.
  absl::StatusOr<std::string> Normalize(absl::string_view text, size_t max_bytes) const;

 private:
  Charsmap() = default;
  // The replacement of the shortest key that `text` starts with.
  absl::StatusOr<std::optional<absl::string_view>> Find(absl::string_view text) const;

  std::vector<uint32_t> units_;
  std::string table_;
};

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_CHARSMAP_H_
