#include "common/model/vision_tower.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "common/device/upload.h"
#include "common/model/image_attention.h"
#include "common/model/layers/layer_forward.h"
#include "common/model/layers/tensor_ops.h"
#include "common/model/rotary_frequencies.h"
#include "common/model/tile_tower.h"
#include "common/model/vision_ops.h"

namespace tandem::model {
namespace {

// Two neighbours among the learned positions of an axis, and the share of each in a patch's.
struct GridPoint {
  std::array<int64_t, 2> vectors;
  std::array<float, 2> shares;
};

// The points of `size` patches in a row that stretch over `side` positions, end on end, with the
// roundings of transformers (get_vision_interpolation_indices_and_weights(), align_corners).
std::vector<GridPoint> PointsBetween(int64_t size, int64_t side) {
  std::vector<GridPoint> points;
  const auto steps = static_cast<float>(std::max<int64_t>(size - 1, 1));
  for (int64_t i = 0; i < size; ++i) {
    const float at = static_cast<float>(i) * static_cast<float>(side - 1) / steps;
    const float before = std::floor(at);
    const auto first = static_cast<int64_t>(before);
    const float beyond = at - before;
    points.push_back({{std::min(first, side - 1), std::min(first + 1, side - 1)},
                      {1.0F - beyond, std::max(1.0F - std::abs(beyond - 1.0F), 0.0F)}});
  }
  return points;
}

// The row and the column of each patch in its image, in the order of pixel_values.
struct PatchPlaces {
  std::vector<int64_t> rows;
  std::vector<int64_t> columns;
};

PatchPlaces PlacesOf(const VisionSpec& spec, const std::vector<ImageGrid>& grids) {
  PatchPlaces places;
  const int64_t merge = spec.merge_size;
  for (const ImageGrid& grid : grids) {
    for (int64_t row = 0; row < grid.rows; row += merge) {
      for (int64_t column = 0; column < grid.columns; column += merge) {
        for (int64_t i = 0; i < merge * merge; ++i) {
          places.rows.push_back(row + i / merge);
          places.columns.push_back(column + i % merge);
        }
      }
    }
  }
  return places;
}

// Cosines and sines of the patches: half of the pairs turn by a patch's row, half by its column.
RotaryAngles AnglesOfPatches(const VisionSpec& spec, const PatchPlaces& places,
                             const at::Device& device) {
  const int64_t head_dim = spec.layers.front().attention.head_dim;
  // Every other frequency of a whole head.
  const RotaryFrequencies of_half = FrequenciesOf(spec.rope, head_dim / 2, /*length=*/0);
  const at::Tensor of_rows = at::tensor(of_half.inverse, at::kFloat);
  at::Tensor of_columns = of_rows;
  if (spec.columns_between_rows) {
    const RotaryFrequencies of_head = FrequenciesOf(spec.rope, head_dim, /*length=*/0);
    of_columns = at::tensor(of_head.inverse, at::kFloat).slice(0, 1, std::nullopt, 2).contiguous();
  }
  const RotaryAngles by_row = AnglesOf(Numbers(places.rows, device), of_rows);
  const RotaryAngles by_column = AnglesOf(Numbers(places.columns, device), of_columns);
  return {at::cat({by_row.cos, by_column.cos}, 1), at::cat({by_row.sin, by_column.sin}, 1)};
}

// Adds the learned positions to the patches, x [num_patches, tower's hidden]: those of the square
// `table` [position_grid^2, tower's hidden] between whose vectors a patch lies. In float32, the four
// in one order, so that the bits are the same wherever it is computed.
at::Tensor AddPositions(const VisionSpec& spec, const std::vector<ImageGrid>& grids,
                        const PatchPlaces& places, const at::Tensor& table, const at::Tensor& x) {
  constexpr size_t kCorners = 4;
  const size_t num_patches = places.rows.size();
  // Corner by corner.
  std::vector<int64_t> vectors(kCorners * num_patches);
  std::vector<float> shares(kCorners * num_patches);
  size_t patch = 0;
  for (const ImageGrid& grid : grids) {
    const std::vector<GridPoint> rows = PointsBetween(grid.rows, spec.position_grid);
    const std::vector<GridPoint> columns = PointsBetween(grid.columns, spec.position_grid);
    for (int64_t i = 0; i < grid.num_patches(); ++i, ++patch) {
      const GridPoint& row = rows[static_cast<size_t>(places.rows[patch])];
      const GridPoint& column = columns[static_cast<size_t>(places.columns[patch])];
      for (size_t corner = 0; corner < kCorners; ++corner) {
        const size_t below = corner / 2;
        const size_t right = corner % 2;
        const size_t at = corner * num_patches + patch;
        vectors[at] = row.vectors[below] * spec.position_grid + column.vectors[right];
        shares[at] = row.shares[below] * column.shares[right];
      }
    }
  }
  const at::Tensor of_corners = Numbers(vectors, x.device()).view({kCorners, -1});
  const at::Tensor shares_of_corners =
      ::tandem::device::Upload(at::tensor(shares, at::kFloat), x.device()).view({kCorners, -1, 1});
  at::Tensor sum;
  for (int64_t corner = 0; corner < static_cast<int64_t>(kCorners); ++corner) {
    const at::Tensor of_corner =
        at::embedding(table, of_corners[corner]).to(at::kFloat) * shares_of_corners[corner];
    sum = sum.defined() ? sum + of_corner : of_corner;
  }
  return x + sum.to(x.scalar_type());
}

// Numbers of merged rows, window by window, and where each window ends, in patches.
struct Windows {
  std::vector<int64_t> order;
  std::vector<int64_t> ends = {0};
};

Windows WindowsOf(const VisionSpec& spec, const std::vector<ImageGrid>& grids) {
  Windows windows;
  const int64_t size = spec.window_size;
  int64_t first = 0;
  for (const ImageGrid& grid : grids) {
    const int64_t rows = grid.rows / spec.merge_size;
    const int64_t columns = grid.columns / spec.merge_size;
    for (int64_t top = 0; top < rows; top += size) {
      for (int64_t left = 0; left < columns; left += size) {
        for (int64_t row = top; row < std::min(top + size, rows); ++row) {
          for (int64_t column = left; column < std::min(left + size, columns); ++column) {
            windows.order.push_back(first + row * columns + column);
          }
        }
        windows.ends.push_back(static_cast<int64_t>(windows.order.size()) * spec.patches_per_row());
      }
    }
    first += rows * columns;
  }
  return windows;
}

// Of each number, its place in the order.
std::vector<int64_t> PlacesIn(const std::vector<int64_t>& order) {
  std::vector<int64_t> places(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    places[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return places;
}

std::vector<int64_t> EndsOf(const std::vector<ImageGrid>& grids) {
  std::vector<int64_t> ends = {0};
  for (const ImageGrid& grid : grids) ends.push_back(ends.back() + grid.num_patches());
  return ends;
}

// Puts the patches of merged row order[i] at place i. x: [num_patches, width].
at::Tensor Ordered(const at::Tensor& x, const at::Tensor& order, int64_t patches_per_row) {
  return x.unflatten(0, {-1, patches_per_row}).index_select(0, order).flatten(0, 1);
}

}  // namespace

at::Tensor EncodeImages(const Transformer& model, const ParameterProvider& params,
                        const ImagePatches& images) {
  TORCH_CHECK(model.spec().vision.has_value(), "the model has no vision tower");
  const VisionSpec& spec = *model.spec().vision;
  const VisionParameters& at = model.table().vision();
  const std::vector<int64_t> ends = EndsOf(images.grids);
  TORCH_CHECK(images.pixel_values.dim() == 2 && images.pixel_values.size(0) == ends.back() &&
                  images.pixel_values.size(1) == spec.patch_elements(),
              "pixel_values: expected [", ends.back(), ", ", spec.patch_elements(), "], found ",
              images.pixel_values.sizes());
  if (spec.tiles.has_value()) return EncodeTiles(model, params, images);
  const at::Tensor& patches = params.Get(at.patch_weight);
  at::Tensor x =
      TimesWeight(PixelsFor(patches, images.pixel_values), params, at.patch_weight, at.patch_bias);
  const PatchPlaces places = PlacesOf(spec, images.grids);
  if (at.positions >= 0) {
    x = AddPositions(spec, images.grids, places, params.Get(at.positions), x);
  }
  if (spec.first_norm.has_value()) {
    x = Normalize(x, NormOf(params, *spec.first_norm, at.first_norm));
  }

  Rotary rotary;
  rotary.ropes.push_back(AnglesOfPatches(spec, places, x.device()));
  ImageAttention whole(ends);
  std::optional<ImageAttention> windowed;
  at::Tensor places_in_windows;  // of the merged rows
  if (spec.window_size > 0) {
    Windows windows = WindowsOf(spec, images.grids);
    const at::Tensor order = Numbers(windows.order, x.device());
    places_in_windows = Numbers(PlacesIn(windows.order), x.device());
    windowed.emplace(std::move(windows.ends));
    // Windows do not leave an image, so that its patches stay together.
    x = Ordered(x, order, spec.patches_per_row());
    RotaryAngles& angles = rotary.ropes.front();
    angles.cos = Ordered(angles.cos, order, spec.patches_per_row());
    angles.sin = Ordered(angles.sin, order, spec.patches_per_row());
  }

  const OpContext context{params};
  Residual stream{x, {}};
  std::vector<at::Tensor> parts(1);  // the first, of the embedding, is the last to be made
  for (int64_t i = 0; i < spec.num_layers(); ++i) {
    const LayerSpec& layer = spec.layers[static_cast<size_t>(i)];
    const AttentionSpec& attention = layer.attention;
    const QkvShape heads{attention.num_heads, attention.num_kv_heads, attention.head_dim};
    const LayerAttention of_layer{attention, heads, i, rotary,
                                  spec.HasWindow(i) ? *windowed : whole};
    TensorOps ops(context, of_layer);
    stream = LayerForward(ops, layer, at.layers[static_cast<size_t>(i)], stream);
    const size_t next = parts.size() - 1;
    if (next == at.deepstack.size() || spec.deepstack_layers[next] != i) continue;
    stream = {Sum(stream), {}};
    parts.push_back(MergePatches(spec, at.deepstack[next], params, stream.x, spec.merged_size()));
  }
  parts.front() = MergePatches(spec, at.merger, params, Sum(stream), spec.hidden_size);
  const at::Tensor rows = parts.size() == 1 ? parts.front() : at::cat(parts, 1);
  return places_in_windows.defined() ? rows.index_select(0, places_in_windows) : rows;
}

at::Tensor PutImages(const at::Tensor& x, const at::Tensor& tokens, const at::Tensor& rows) {
  return at::index_copy(x, 0, tokens, rows.narrow(1, 0, x.size(1)).to(x.scalar_type()));
}

bool HasPartFor(const at::Tensor& rows, int64_t layer, int64_t hidden_size) {
  return rows.defined() && (layer + 2) * hidden_size <= rows.size(1);
}

at::Tensor AddImages(const at::Tensor& x, const at::Tensor& tokens, const at::Tensor& rows,
                     int64_t layer) {
  if (!HasPartFor(rows, layer, x.size(1))) return x;
  return AddRows(x, tokens, rows.narrow(1, (layer + 1) * x.size(1), x.size(1)));
}

at::Tensor AddRows(const at::Tensor& x, const at::Tensor& tokens, const at::Tensor& rows) {
  return at::index_add(x, 0, tokens, rows.to(x.scalar_type()));
}

}  // namespace tandem::model
