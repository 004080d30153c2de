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

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/model_spec.h"

namespace tandem::model {

// Rows of an image that was cut into tiles of a canvas (CanvasSpec) stand in lines behind those of the first
// tile, which shows the whole image; one more row, the newline, ends each line. Made by packed_tiles.h.
struct PackedLines {
  int64_t tile_columns = 0;  // tiles of the canvas beside one another; 0: the image is one tile
  // The part of the canvas that the image covers, in patches.
  int64_t top = 0;
  int64_t left = 0;
  int64_t height = 0;
  int64_t width = 0;
  // What becomes of it: height and width, or fewer of both, between which rows are interpolated.
  int64_t lines = 0;
  int64_t columns = 0;  // rows of a line, without the newline

  int64_t num_rows() const { return lines * (columns + 1); }
  bool is_shrunk() const { return lines != height || columns != width; }
};

// The patches of an image: multiples of VisionSpec::merge_size; of a tower that sees tiles, those of the
// tiles, one below the other.
struct ImageGrid {
  int64_t rows = 0;
  int64_t columns = 0;
  PackedLines packed = {};  // of a tower with a canvas

  int64_t num_patches() const { return rows * columns; }
};

// Number of rows of the embedding, and of placeholders, that the image becomes.
int64_t NumImageRows(const VisionSpec& spec, const ImageGrid& grid);

// Placeholders that follow one another: the tokens [begin, end).
struct ImageRun {
  int64_t begin = 0;
  int64_t end = 0;
};

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

  // The run of placeholders that a cut before `token` would divide; empty if it divides none.
  ImageRun RunAround(int64_t token) const;
};

// INVALID_ARGUMENT, with the image or the token: an image with fewer placeholders than rows, a
// placeholder without an image, a grid that does not split into merged rows, placeholders that are not
// in lines of VisionSpec::has_line_breaks or TileSpec::text_between, images of VisionSpec::images_see_ahead
// without a token of text behind them. UNIMPLEMENTED: a placeholder of a video.
absl::StatusOr<ImagePlaces> PlaceImages(const VisionSpec& spec, absl::Span<const int64_t> token_ids,
                                        absl::Span<const ImageGrid> grids);

// Behind the last token that each of the tokens [begin, end) of a sequence sees, where the placeholders of an
// image see one another (VisionSpec::images_see_ahead): behind the image, and of text, behind itself.
// placeholders: those among these tokens, ascending; an image's are a run, with text behind it, that does
// not go on behind `end`.
std::vector<int64_t> SeenEnds(absl::Span<const int64_t> placeholders, int64_t begin, int64_t end);

// INVALID_ARGUMENT, with the key, unless a step of rollout.max_num_batched_tokens tokens has room for an
// image whose placeholders see one another, beside a token of each of rollout.max_num_seqs sequences.
absl::Status CheckStepTokens(const VisionSpec& spec, int64_t max_num_seqs,
                             int64_t max_num_batched_tokens);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_IMAGE_PLACES_H_
