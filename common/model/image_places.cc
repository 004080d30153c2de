#include "common/model/image_places.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

// More patches than that are no image; products of sizes then do not overflow.
constexpr int64_t kMaxSide = int64_t{1} << 20;

absl::Status CheckTiles(const VisionSpec& spec, size_t image, const ImageGrid& grid) {
  const int64_t side = spec.tiles->side;
  if (grid.columns == side && grid.rows >= side && grid.rows % side == 0 && grid.rows <= kMaxSide) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("images[", image, "]: expected tiles of ", side,
                                                 " x ", side, " patches, found ", grid.rows, " x ",
                                                 grid.columns));
}

absl::Status CheckGrid(const VisionSpec& spec, size_t image, const ImageGrid& grid) {
  if (spec.tiles.has_value()) return CheckTiles(spec, image, grid);
  const int64_t merge = spec.merge_size;
  if (grid.rows >= merge && grid.columns >= merge && grid.rows % merge == 0 &&
      grid.columns % merge == 0 && grid.rows <= kMaxSide && grid.columns <= kMaxSide) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("images[", image, "]: expected multiples of ",
                                                 merge, " patches, found ", grid.rows, " x ",
                                                 grid.columns));
}

// Goes through a sequence, whose tokens get their positions one after another.
class Placer {
 public:
  Placer(const VisionSpec& spec, absl::Span<const int64_t> token_ids)
      : spec_(spec), token_ids_(token_ids) {
    for (std::vector<int64_t>& axis : places_.positions) axis.reserve(token_ids.size());
  }

  bool AtEnd() const { return token_ == token_ids_.size(); }
  bool AtPlaceholder() const { return !AtEnd() && token_ids_[token_] == spec_.image_token_id; }
  size_t token() const { return token_; }
  ImagePlaces Take() { return std::move(places_); }

  absl::Status AddText() {
    if (spec_.video_token_id >= 0 && token_ids_[token_] == spec_.video_token_id) {
      return absl::UnimplementedError(absl::StrCat("token ", token_, ": id ", spec_.video_token_id,
                                                   " stands for a video; expected images"));
    }
    Add(0, 0);
    ++next();
    return absl::OkStatus();
  }

  // Adds the placeholders of an image, and the tokens of text between its lines.
  absl::Status AddImage(size_t image, const ImageGrid& grid) {
    RETURN_IF_ERROR(CheckGrid(spec_, image, grid));
    // Rows of tiles lie in one line.
    const int64_t count = NumImageRows(spec_, grid);
    const int64_t columns = spec_.tiles.has_value() ? count : grid.columns / spec_.merge_size;
    const int64_t rows = count / columns;
    for (int64_t i = 0; i < count; ++i) {
      if (spec_.has_line_breaks && i > 0 && i % columns == 0) {
        if (AtEnd() || AtPlaceholder()) return LineError(image, i / columns - 1, rows, columns);
        RETURN_IF_ERROR(AddText());
      }
      if (!AtPlaceholder()) {
        const std::string of = spec_.tiles.has_value()
                                   ? absl::StrCat(count, " rows")
                                   : absl::StrCat(rows, " x ", columns, " rows");
        return absl::InvalidArgumentError(absl::StrCat("images[", image, "]: expected ", count,
                                                       " placeholders, one for each of ", of,
                                                       ", found ", i, " before token ", token_));
      }
      places_.tokens.push_back(static_cast<int64_t>(token_));
      if (spec_.has_text_positions) {
        Add(0, 0);
        ++next();
      } else {
        Add(i / columns, i % columns);
      }
    }
    if (spec_.has_line_breaks && AtPlaceholder()) {
      return LineError(image, rows - 1, rows, columns);
    }
    if (!spec_.has_text_positions) next() += std::max(rows, columns);
    return absl::OkStatus();
  }

 private:
  int64_t& next() { return places_.next_position; }

  // Gives the token a position, below and right of the next one, and goes on to the next token.
  void Add(int64_t row, int64_t column) {
    places_.positions[0].push_back(next());
    places_.positions[1].push_back(next() + row);
    places_.positions[2].push_back(next() + column);
    ++token_;
  }

  absl::Status LineError(size_t image, int64_t line, int64_t rows, int64_t columns) const {
    return absl::InvalidArgumentError(
        absl::StrCat("images[", image, "]: expected ", rows, " lines of ", columns,
                     " placeholders, each followed by a token of text, found none behind line ",
                     line, ", at token ", token_));
  }

  const VisionSpec& spec_;
  const absl::Span<const int64_t> token_ids_;
  size_t token_ = 0;
  ImagePlaces places_;
};

}  // namespace

int64_t NumImageRows(const VisionSpec& spec, const ImageGrid& grid) {
  if (spec.tiles.has_value()) return grid.rows / spec.tiles->side * spec.rows_per_tile();
  return grid.num_patches() / spec.patches_per_row();
}

absl::Span<const int64_t> ImagePlaces::TokensIn(int64_t begin, int64_t end) const {
  const auto first = std::lower_bound(tokens.begin(), tokens.end(), begin);
  const auto last = std::lower_bound(first, tokens.end(), end);
  return absl::MakeConstSpan(tokens).subspan(first - tokens.begin(), last - first);
}

absl::StatusOr<ImagePlaces> PlaceImages(const VisionSpec& spec, absl::Span<const int64_t> token_ids,
                                        absl::Span<const ImageGrid> grids) {
  Placer placer(spec, token_ids);
  size_t image = 0;
  while (!placer.AtEnd()) {
    if (!placer.AtPlaceholder()) {
      RETURN_IF_ERROR(placer.AddText());
      continue;
    }
    if (image == grids.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("token ", placer.token(), ": id ", spec.image_token_id,
                       " stands for a row of an image, and no image is left of the ", grids.size(),
                       "; expected as many placeholders as the images have rows"));
    }
    RETURN_IF_ERROR(placer.AddImage(image, grids[image]));
    ++image;
  }
  if (image < grids.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "images[", image, "]: no placeholder, id ", spec.image_token_id, ", for it: ", grids.size(),
        " images, of which the tokens have place for ", image));
  }
  return placer.Take();
}

}  // namespace tandem::model
