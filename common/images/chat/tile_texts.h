// The texts of an image that is cut into tiles, as the processors of Idefics3 and SmolVLM write them. Of two
// lines of two tiles, where N is "<image>" as often as a tile has placeholders:
// "<fake_token_around_image><row_1_col_1>N<fake_token_around_image><row_1_col_2>N\n", the same of row 2 and
// a second "\n" behind it, and then what an image that is not cut has alone,
// "<fake_token_around_image><global-img>N<fake_token_around_image>". The names are tokens of some tokenizers,
// and text to others.
#ifndef TANDEM_COMMON_IMAGES_CHAT_TILE_TEXTS_H_
#define TANDEM_COMMON_IMAGES_CHAT_TILE_TEXTS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tandem::images {

struct TileTexts {
  std::string whole;     // names the picture of the whole image: "<global-img>"
  int64_t max_side = 0;  // the most tiles below and beside each other; 0: images are not cut

  friend bool operator==(const TileTexts&, const TileTexts&) = default;
};

// The same by their ids.
struct TileIds {
  std::vector<int32_t> whole;
  std::vector<int32_t> line;       // behind a line of tiles
  std::vector<int32_t> last_line;  // behind the last
  int64_t max_side = 0;
  std::vector<std::vector<int32_t>> names;  // line by line, max_side x max_side

  const std::vector<int32_t>& At(int64_t row, int64_t column) const {
    return names[static_cast<size_t>(row * max_side + column)];
  }
};

// More tiles on a side are refused.
inline constexpr int64_t kMaxTilesOnSide = 64;

// The tokens on both sides of a name: the one that stands before each tile, and the placeholder.
struct TileBounds {
  std::string placeholder;
  int32_t placeholder_id = -1;
  std::string start;
  int32_t start_id = -1;
};

// Returns the ids of a text, in which tokens are recognised.
using EncodeText = std::function<absl::StatusOr<std::vector<int32_t>>(const std::string& text)>;

// FAILED_PRECONDITION if the tokenizer does not keep the bounds apart from what is between them.
absl::StatusOr<TileIds> FindTileIds(const TileTexts& texts, const TileBounds& bounds,
                                    const EncodeText& encode);

// Whether `tokens` end with `start` and the name.
bool EndsWith(absl::Span<const uint32_t> tokens, int32_t start, const std::vector<int32_t>& name);

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_CHAT_TILE_TEXTS_H_
