#include "common/model/image_places.h"

#include <algorithm>
#include <iterator>
#include <numeric>
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
    // Rows of tiles lie in one line, or those of each.
    const bool has_text_between = spec_.tiles.has_value() && spec_.tiles->text_between;
    const bool has_lines = spec_.has_line_breaks || has_text_between;
    const int64_t count = NumImageRows(spec_, grid);
    const int64_t columns = has_text_between          ? spec_.rows_per_tile()
                            : spec_.tiles.has_value() ? count
                                                      : grid.columns / spec_.merge_size;
    const int64_t rows = count / columns;
    for (int64_t i = 0; i < count; ++i) {
      if (has_lines && i > 0 && i % columns == 0) {
        if (AtEnd() || AtPlaceholder()) return LineError(image, i / columns - 1, rows, columns);
        do {
          RETURN_IF_ERROR(AddText());
        } while (has_text_between && !AtEnd() && !AtPlaceholder());
      }
      if (!AtPlaceholder()) {
        const std::string of = has_text_between ? absl::StrCat(columns, " rows of ", rows, " tiles")
                               : spec_.tiles.has_value()
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
    if (has_lines && AtPlaceholder()) {
      return LineError(image, rows - 1, rows, columns);
    }
    if (spec_.images_see_ahead && (AtEnd() || AtPlaceholder())) {
      return absl::InvalidArgumentError(
          absl::StrCat("images[", image, "]: expected a token of text behind its ", count,
                       " placeholders, which see one another, found ",
                       AtEnd() ? "none" : absl::StrCat("a placeholder, token ", token_)));
    }
    if (!spec_.has_text_positions) next() += std::max(rows, columns);
    return absl::OkStatus();
  }

 private:
  int64_t& next() { return places_.next_position; }

  // Gives the token at hand the next position, `row` further down and `column` further right.
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
  if (spec.has_canvas()) {
    return spec.rows_per_tile() + grid.packed.num_rows();
  }
  if (spec.tiles.has_value()) return grid.rows / spec.tiles->side * spec.rows_per_tile();
  return grid.num_patches() / spec.patches_per_row();
}

absl::Span<const int64_t> ImagePlaces::TokensIn(int64_t begin, int64_t end) const {
  const auto first = std::lower_bound(tokens.begin(), tokens.end(), begin);
  const auto last = std::lower_bound(first, tokens.end(), end);
  return absl::MakeConstSpan(tokens).subspan(first - tokens.begin(), last - first);
}

ImageRun ImagePlaces::RunAround(int64_t token) const {
  const auto at = std::lower_bound(tokens.begin(), tokens.end(), token);
  const auto divides = [&](auto next) {
    return next != tokens.begin() && next != tokens.end() && *std::prev(next) + 1 == *next;
  };
  if (at == tokens.end() || *at != token || !divides(at)) return {};
  auto begin = at;
  while (divides(begin)) --begin;
  auto end = at;
  do {
    ++end;
  } while (divides(end));
  return {*begin, *std::prev(end) + 1};
}

std::vector<int64_t> SeenEnds(absl::Span<const int64_t> placeholders, int64_t begin, int64_t end) {
  std::vector<int64_t> ends(static_cast<size_t>(end - begin));
  std::iota(ends.begin(), ends.end(), begin + 1);
  // From behind: a placeholder sees as far as the one that follows it.
  for (size_t i = placeholders.size(); i-- > 1;) {
    if (placeholders[i] != placeholders[i - 1] + 1) continue;
    ends[static_cast<size_t>(placeholders[i - 1] - begin)] =
        ends[static_cast<size_t>(placeholders[i] - begin)];
  }
  return ends;
}

absl::Status CheckStepTokens(const VisionSpec& spec, int64_t max_num_seqs,
                             int64_t max_num_batched_tokens) {
  if (!spec.images_see_ahead) return absl::OkStatus();
  const int64_t least = max_num_seqs + spec.rows_per_tile();
  if (max_num_batched_tokens >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "rollout.max_num_batched_tokens: a step computes an image whole, whose ",
      spec.rows_per_tile(),
      " tokens see one another, beside a token of each sequence that decodes; ", "expected ", least,
      " or more with rollout.max_num_seqs ", max_num_seqs, ", found ", max_num_batched_tokens));
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
