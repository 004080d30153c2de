#include "common/model/image_places.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

absl::Status CheckGrid(const VisionSpec& spec, size_t image, const ImageGrid& grid) {
  const int64_t merge = spec.merge_size;
  // More patches than that are no image; products of sizes then do not overflow.
  constexpr int64_t kMaxSide = int64_t{1} << 20;
  if (grid.rows >= merge && grid.columns >= merge && grid.rows % merge == 0 &&
      grid.columns % merge == 0 && grid.rows <= kMaxSide && grid.columns <= kMaxSide) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("images[", image, "]: expected multiples of ",
                                                 merge, " patches, found ", grid.rows, " x ",
                                                 grid.columns));
}

}  // namespace

int64_t NumImageRows(const VisionSpec& spec, const ImageGrid& grid) {
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
  size_t image = 0;
  int64_t& next = places.next_position;
  for (size_t token = 0; token < token_ids.size();) {
    if (token_ids[token] == spec.video_token_id) {
      return absl::UnimplementedError(absl::StrCat("token ", token, ": id ", spec.video_token_id,
                                                   " stands for a video; expected images"));
    }
    if (token_ids[token] != spec.image_token_id) {
      add(next, next, next);
      ++next;
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
    const int64_t rows = grid.rows / spec.merge_size;
    const int64_t columns = grid.columns / spec.merge_size;
    for (int64_t i = 0; i < rows * columns; ++i, ++token) {
      if (token == token_ids.size() || token_ids[token] != spec.image_token_id) {
        return absl::InvalidArgumentError(absl::StrCat(
            "images[", image, "]: expected ", rows * columns, " placeholders, one for each of ",
            rows, " x ", columns, " rows, found ", i, " before token ", token));
      }
      places.tokens.push_back(static_cast<int64_t>(token));
      add(next, next + i / columns, next + i % columns);
    }
    next += std::max(rows, columns);
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
