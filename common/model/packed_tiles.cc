#include "common/model/packed_tiles.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem::model {
namespace {

double Of(int64_t value) { return static_cast<double>(value); }

// Python's int(round(x, 7)) of x >= 0: up from 0.99999995 on, which no double is.
int64_t RoundedDown(double x) {
  const double whole = std::floor(x);
  const bool is_next = static_cast<long double>(x - whole) > 0.99999995L;
  return static_cast<int64_t>(whole) + (is_next ? 1 : 0);
}

// Python's int(a // b) of positive numbers, which takes the remainder first.
int64_t FloorDivided(double a, double b) {
  const double quotient = (a - std::fmod(a, b)) / b;
  const double whole = std::floor(quotient);
  return static_cast<int64_t>(quotient - whole > 0.5 ? whole + 1 : whole);
}

// The image's part of the canvas, in patches.
PackedLines WithoutMargins(const TileSpec& tiles, CanvasSpec::Size image, CanvasSpec::Size canvas) {
  PackedLines lines;
  lines.tile_columns = canvas.width / tiles.image_size;
  lines.height = canvas.height / tiles.image_size * tiles.side;
  lines.width = lines.tile_columns * tiles.side;
  if (Of(image.width) / Of(image.height) > Of(lines.width) / Of(lines.height)) {
    const int64_t height = RoundedDown(Of(image.height) * (Of(lines.width) / Of(image.width)));
    lines.top = (lines.height - height) / 2;
    lines.height -= 2 * lines.top;
  } else {
    const int64_t width = RoundedDown(Of(image.width) * (Of(lines.height) / Of(image.height)));
    lines.left = (lines.width - width) / 2;
    lines.width -= 2 * lines.left;
  }
  return lines;
}

// The two neighbours of a line, or of a column, among those of the canvas, and the share of the second.
struct Between {
  std::array<int64_t, 2> neighbours;
  float share;
};

// LibTorch's bilinear interpolation from `from` to `to` points.
std::vector<Between> PointsBetween(int64_t from, int64_t to) {
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  std::vector<Between> points;
  for (int64_t i = 0; i < to; ++i) {
    const float at = std::max(scale * (static_cast<float>(i) + 0.5F) - 0.5F, 0.0F);
    const auto first = std::min(static_cast<int64_t>(at), from - 1);
    points.push_back({{first, std::min(first + 1, from - 1)},
                      std::clamp(at - static_cast<float>(first), 0.0F, 1.0F)});
  }
  return points;
}

class Packer {
 public:
  explicit Packer(const TileSpec& tiles) : tiles_(tiles) {}

  void Add(const ImageGrid& grid) {
    const int64_t per_tile = tiles_.side * tiles_.side;
    for (int64_t row = 0; row < per_tile; ++row) Put(Kind::kTile, first_row_ + row);
    const PackedLines& packed = grid.packed;
    if (packed.is_shrunk()) {
      AddShrunk(packed);
    } else {
      for (int64_t line = 0; line < packed.lines; ++line) {
        for (int64_t column = 0; column < packed.columns; ++column) {
          Put(Kind::kTile, RowAt(packed, line, column));
        }
        AddNewline();
      }
    }
    first_row_ += grid.num_patches();
  }

  PackedOrder Take() && {
    const int64_t num_between =
        order_.corners.empty() ? 0 : static_cast<int64_t>(order_.corners.front().rows.size());
    for (const auto& [kind, index] : sources_) {
      const int64_t before = kind == Kind::kTile      ? 0
                             : kind == Kind::kBetween ? first_row_
                                                      : first_row_ + num_between;
      order_.sources.push_back(before + index);
    }
    return std::move(order_);
  }

 private:
  enum class Kind { kTile, kBetween, kNewline };

  void Put(Kind kind, int64_t index) { sources_.emplace_back(kind, index); }
  void AddNewline() { Put(Kind::kNewline, order_.num_newlines++); }

  // The row of a patch of the canvas' part, among those of all tiles.
  int64_t RowAt(const PackedLines& packed, int64_t line, int64_t column) const {
    const int64_t y = packed.top + line;
    const int64_t x = packed.left + column;
    const int64_t tile = 1 + y / tiles_.side * packed.tile_columns + x / tiles_.side;
    return first_row_ + (tile * tiles_.side + y % tiles_.side) * tiles_.side + x % tiles_.side;
  }

  void AddShrunk(const PackedLines& packed) {
    order_.corners.resize(4);
    const std::vector<Between> lines = PointsBetween(packed.height, packed.lines);
    const std::vector<Between> columns = PointsBetween(packed.width, packed.columns);
    for (const Between& line : lines) {
      for (const Between& column : columns) {
        Put(Kind::kBetween, static_cast<int64_t>(order_.corners.front().rows.size()));
        for (size_t corner = 0; corner < order_.corners.size(); ++corner) {
          const size_t below = corner / 2;
          const size_t right = corner % 2;
          order_.corners[corner].rows.push_back(
              RowAt(packed, line.neighbours[below], column.neighbours[right]));
          order_.corners[corner].shares.push_back((below == 1 ? line.share : 1 - line.share) *
                                                  (right == 1 ? column.share : 1 - column.share));
        }
      }
      AddNewline();
    }
  }

  const TileSpec& tiles_;
  int64_t first_row_ = 0;  // of the image, among those of all tiles
  std::vector<std::pair<Kind, int64_t>> sources_;
  PackedOrder order_;
};

}  // namespace

absl::StatusOr<ImageGrid> PackTiles(const TileSpec& tiles, CanvasSpec::Size image,
                                    CanvasSpec::Size canvas) {
  const int64_t num_tiles =
      1 + canvas.height / tiles.image_size * (canvas.width / tiles.image_size);
  PackedLines packed = WithoutMargins(tiles, image, canvas);
  packed.lines = packed.height;
  packed.columns = packed.width;
  const double most = Of(tiles.canvas->max_tiles * tiles.side * tiles.side);
  const double ratio = std::sqrt(Of(packed.height * packed.width) / most);
  if (ratio > 1.1) {
    packed.lines = FloorDivided(Of(packed.height), ratio);
    packed.columns = FloorDivided(Of(packed.width), ratio);
    if (packed.lines < 1 || packed.columns < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the image has ", image.width, " x ", image.height, " pixels; shrunk to the rows of ",
          tiles.canvas->max_tiles, " tiles, nothing is left of it"));
    }
  }
  return ImageGrid{num_tiles * tiles.side, tiles.side, packed};
}

ImageGrid PackOneTile(const TileSpec& tiles) {
  return {tiles.side, tiles.side, {.lines = 1, .columns = 0}};
}

PackedOrder OrderOf(const TileSpec& tiles, const std::vector<ImageGrid>& grids) {
  Packer packer(tiles);
  for (const ImageGrid& grid : grids) packer.Add(grid);
  return std::move(packer).Take();
}

}  // namespace tandem::model
