// ImagePlaces: where the images of a sequence of tokens lie in it, and the positions that its tokens
// have. A placeholder token stands for each row that a vision tower makes (vision_tower.h).
//
//   const std::vector<ImageGrid> grids = {{.rows = 16, .columns = 12}};
//   ASSIGN_OR_RETURN(const ImagePlaces places, PlaceImages(*spec.vision, token_ids, grids));
//   // places.tokens: the 48 placeholders
#ifndef TANDEM_COMMON_MODEL_IMAGE_PLACES_H_
#define TANDEM_COMMON_MODEL_IMAGE_PLACES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/model_spec.h"

namespace tandem::model {

// The patches of an image: multiples of VisionSpec::merge_size; of a tower that sees tiles, those of the
// tiles, one below the other.
struct ImageGrid {
  int64_t rows = 0;
  int64_t columns = 0;

  int64_t num_patches() const { return rows * columns; }
};

// Number of rows of the embedding, and of placeholders, that the image becomes.
int64_t NumImageRows(const VisionSpec& spec, const ImageGrid& grid);

struct ImagePlaces {
  // The tokens that are placeholders, in order: those of the first image, then of the next.
  std::vector<int64_t> tokens;
  // By time, height and width, of each token. Text counts on in all three. An image that begins at
  // position p has p, p + row and p + column of its merged rows, and what follows begins at
  // p + max(rows, columns). With VisionSpec::has_text_positions all tokens are as text.
  std::array<std::vector<int64_t>, 3> positions;
  // Of a token that follows the sequence, in all three.
  int64_t next_position = 0;

  // The placeholders among the tokens [begin, end).
  absl::Span<const int64_t> TokensIn(int64_t begin, int64_t end) const;
};

// INVALID_ARGUMENT, with the image or the token: an image with fewer placeholders than rows, a
// placeholder without an image, a grid that does not split into merged rows, placeholders that are not
// in lines of VisionSpec::has_line_breaks. UNIMPLEMENTED: a placeholder of a video.
absl::StatusOr<ImagePlaces> PlaceImages(const VisionSpec& spec, absl::Span<const int64_t> token_ids,
                                        absl::Span<const ImageGrid> grids);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_IMAGE_PLACES_H_
