// The tokens that stand for an image in a prompt: a placeholder for each row that the model makes of it.
// Processors put tokens of text around them (InternVL), and between the lines of an image (Pixtral).
//
//   const PlaceholderIds pixtral{.placeholder = 10, .line_break = 12, .end = 13};
//   std::vector<int32_t> prompt = {1};
//   AppendPlaceholders(pixtral, {.rows = 2, .columns = 3}, &prompt);
//   // 1, 10, 10, 10, 12, 10, 10, 10, 13
#ifndef TANDEM_COMMON_IMAGES_CHAT_PLACEHOLDERS_H_
#define TANDEM_COMMON_IMAGES_CHAT_PLACEHOLDERS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tandem::images {

// The tokens as a tokenizer has them.
struct PlaceholderTexts {
  std::string placeholder;  // a chat template writes it once for each image
  // Before the first line, behind each line but the last, and behind the last; empty: there are no such
  // tokens, or the chat template writes them.
  std::string start;
  std::string line_break;
  std::string end;
  // The placeholders of every image, where all have as many and images may follow one another; 0: any
  // number, and a token of text lies between two images.
  int64_t fixed_count = 0;

  friend bool operator==(const PlaceholderTexts&, const PlaceholderTexts&) = default;
};

// The same by their ids.
struct PlaceholderIds {
  int32_t placeholder = -1;
  std::optional<int32_t> start;
  std::optional<int32_t> line_break;
  std::optional<int32_t> end;
  int64_t fixed_count = 0;
};

// The placeholders of an image, line by line.
struct PlaceholderGrid {
  int64_t rows = 0;
  int64_t columns = 0;

  int64_t count() const { return rows * columns; }
  friend bool operator==(const PlaceholderGrid&, const PlaceholderGrid&) = default;
};

// Returns the id of a token, or nothing if the tokenizer does not have it.
using IdOfToken = std::function<std::optional<int32_t>(const std::string& token)>;

// FAILED_PRECONDITION names a token of `texts` other than the placeholder that there is no id for.
absl::StatusOr<PlaceholderIds> FindPlaceholderIds(int32_t placeholder,
                                                  const PlaceholderTexts& texts,
                                                  const IdOfToken& id_of);

// Appends the tokens of an image.
void AppendPlaceholders(const PlaceholderIds& ids, const PlaceholderGrid& grid,
                        std::vector<int32_t>* out);

// Where the placeholders of an image lie among tokens.
struct PlacedPlaceholders {
  int64_t begin = 0;  // the first
  int64_t end = 0;    // behind the last
  PlaceholderGrid grid;

  friend bool operator==(const PlacedPlaceholders&, const PlacedPlaceholders&) = default;
};

// Returns those of each image in `token_ids`, which AppendPlaceholders() made.
std::vector<PlacedPlaceholders> FindPlaceholders(const PlaceholderIds& ids,
                                                 absl::Span<const uint32_t> token_ids);

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_CHAT_PLACEHOLDERS_H_
