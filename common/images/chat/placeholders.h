// The tokens that stand for an image in a prompt: a placeholder for each row that the model makes of it.
// Processors put tokens of text around them (InternVL), between the lines of an image (Pixtral), and between
// its tiles (Idefics3, tile_texts.h).
//
//   const PlaceholderIds pixtral{.placeholder = 10, .line_break = 12, .end = 13};
//   std::vector<int32_t> prompt = {1};
//   AppendPlaceholders(pixtral, {.rows = 2, .columns = 3}, &prompt);
//   // 1, 10, 10, 10, 12, 10, 10, 10, 13
#ifndef TANDEM_COMMON_IMAGES_CHAT_PLACEHOLDERS_H_
#define TANDEM_COMMON_IMAGES_CHAT_PLACEHOLDERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/images/chat/tile_texts.h"

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
  // The placeholders of an image that is not its prompt's only one, where all of these have as many and may
  // follow one another; 0: likewise.
  int64_t count_among_others = 0;
  // What a chat template writes for an image, and what takes its place before a text becomes tokens, which
  // has the placeholder once (Gemma 3: ends of line around an image join those that are there). Empty: it
  // writes the placeholder.
  std::string written;
  std::string written_out;
  // Of images whose tiles have texts of their own; then the start stands before each tile.
  std::optional<TileTexts> tiles;

  friend bool operator==(const PlaceholderTexts&, const PlaceholderTexts&) = default;
};

// The same by their ids.
struct PlaceholderIds {
  int32_t placeholder = -1;
  std::optional<int32_t> start;
  std::optional<int32_t> line_break;
  std::optional<int32_t> end;
  int64_t fixed_count = 0;
  int64_t count_among_others = 0;
  std::string written;
  std::string written_out;
  std::shared_ptr<const TileIds> tiles;  // null: none
};

// The placeholders of an image, line by line.
struct PlaceholderGrid {
  int64_t rows = 0;
  int64_t columns = 0;
  // Of an image whose tiles have texts: each is a line. If it is cut, how many tiles lie beside each other; the
  // last line is then the whole image's. 0: it is not cut.
  int64_t tiles_across = 0;

  int64_t count() const { return rows * columns; }
  friend bool operator==(const PlaceholderGrid&, const PlaceholderGrid&) = default;
};

// Returns the id of a token, or nothing if the tokenizer does not have it.
using IdOfToken = std::function<std::optional<int32_t>(const std::string& token)>;

// FAILED_PRECONDITION names a token of `texts` other than the placeholder that there is no id for, or a
// placeholder in `texts` that has another id. `encode`: for texts of tiles, of which it gets the
// texts.placeholder too; else it may be null.
absl::StatusOr<PlaceholderIds> FindPlaceholderIds(int32_t placeholder,
                                                  const PlaceholderTexts& texts,
                                                  const IdOfToken& id_of,
                                                  const EncodeText& encode = nullptr);

// Returns a text with images, as a chat template wrote it, as it becomes tokens.
std::string TextForTokens(const PlaceholderIds& ids, const std::string& text);

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

// Returns those of each image in `token_ids`, which AppendPlaceholders() made. `num_images`: as many as there
// are, 0 if unknown; it tells images of count_among_others placeholders from one of a multiple.
std::vector<PlacedPlaceholders> FindPlaceholders(const PlaceholderIds& ids,
                                                 absl::Span<const uint32_t> token_ids,
                                                 size_t num_images = 0);

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_CHAT_PLACEHOLDERS_H_
