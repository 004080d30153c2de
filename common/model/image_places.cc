#include "common/model/image_places.h"

#include <algorithm>
#include <string>

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

absl::Status LineError(size_t image, size_t token, int64_t line, int64_t rows, int64_t columns) {
  return absl::InvalidArgumentError(
      absl::StrCat("images[", image, "]: expected ", rows, " lines of ", columns,
                   " placeholders, each followed by a token of text, found none behind line ", line,
                   ", at token ", token));
}

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
  ImagePlaces places;
  for (std::vector<int64_t>& axis : places.positions) axis.reserve(token_ids.size());
  const auto add = [&](int64_t time, int64_t height, int64_t width) {
    places.positions[0].push_back(time);
    places.positions[1].push_back(height);
    places.positions[2].push_back(width);
  };
  const auto is_placeholder = [&](size_t token) {
    return token < token_ids.size() && token_ids[token] == spec.image_token_id;
  };
  size_t image = 0;
  int64_t& next = places.next_position;
  const auto add_text = [&] {
    add(next, next, next);
    ++next;
  };
  for (size_t token = 0; token < token_ids.size();) {
    if (spec.video_token_id >= 0 && token_ids[token] == spec.video_token_id) {
      return absl::UnimplementedError(absl::StrCat("token ", token, ": id ", spec.video_token_id,
                                                   " stands for a video; expected images"));
    }
    if (!is_placeholder(token)) {
      add_text();
      ++token;
      continue;
    }
    if (image == grids.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("token ", token, ": id ", spec.image_token_id,
                       " stands for a row of an image, and no image is left of the ", grids.size(),
                       "; expected as many placeholders as the images have rows"));
    }
    const ImageGrid& grid = grids[image];
    RETURN_IF_ERROR(CheckGrid(spec, image, grid));
    // Rows of tiles lie in one line.
    const int64_t count = NumImageRows(spec, grid);
    const int64_t columns = spec.tiles.has_value() ? count : grid.columns / spec.merge_size;
    const int64_t rows = count / columns;
    for (int64_t i = 0; i < count; ++i, ++token) {
      if (spec.has_line_breaks && i > 0 && i % columns == 0) {
        if (token == token_ids.size() || is_placeholder(token)) {
          return LineError(image, token, i / columns - 1, rows, columns);
        }
        add_text();
        ++token;
      }
      if (!is_placeholder(token)) {
        const std::string of = spec.tiles.has_value() ? absl::StrCat(count, " rows")
                                                      : absl::StrCat(rows, " x ", columns, " rows");
        return absl::InvalidArgumentError(absl::StrCat("images[", image, "]: expected ", count,
                                                       " placeholders, one for each of ", of,
                                                       ", found ", i, " before token ", token));
      }
      places.tokens.push_back(static_cast<int64_t>(token));
      if (spec.has_text_positions) {
        add_text();
      } else {
        add(next, next + i / columns, next + i % columns);
      }
    }
    if (spec.has_line_breaks && is_placeholder(token)) {
      return LineError(image, token, rows - 1, rows, columns);
    }
    if (!spec.has_text_positions) next += std::max(rows, columns);
    ++image;
  }
  if (image < grids.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "images[", image, "]: no placeholder, id ", spec.image_token_id, ", for it: ", grids.size(),
        " images, of which the tokens have place for ", image));
  }
  return places;
}

}  // namespace tandem::model
