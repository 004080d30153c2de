#include "common/model/tile_tower.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include <cstdint>
#include <vector>

#include "common/model/image_attention.h"
#include "common/model/layers/layer_forward.h"
#include "common/model/layers/tensor_ops.h"
#include "common/model/tile_packer.h"
#include "common/model/tile_positions.h"
#include "common/model/vision_ops.h"

namespace tandem::model {
namespace {

// The vector of each token of a tile: positions lie row by row, patches by merged rows.
std::vector<int64_t> PositionsOfTile(const VisionSpec& spec) {
  const TileSpec& tiles = *spec.tiles;
  const int64_t merge = spec.merge_size;
  const std::vector<int64_t> places = PlacesOnSide(tiles);
  std::vector<int64_t> positions;
  if (tiles.class_token) positions.push_back(0);
  const auto first = static_cast<int64_t>(positions.size());
  for (int64_t row = 0; row < tiles.side; row += merge) {
    for (int64_t column = 0; column < tiles.side; column += merge) {
      for (int64_t i = 0; i < merge * merge; ++i) {
        positions.push_back(first + places[row + i / merge] * tiles.side +
                            places[column + i % merge]);
      }
    }
  }
  return positions;
}

// patches: [tiles * patches of a tile, tower's hidden]. Returns [tiles * TileSpec::tokens(), hidden].
at::Tensor EmbedTiles(const VisionSpec& spec, const VisionParameters& at,
                      const ParameterProvider& params, const at::Tensor& patches,
                      int64_t num_tiles) {
  const TileSpec& tiles = *spec.tiles;
  at::Tensor x = patches.view({num_tiles, -1, spec.hidden_size});
  if (tiles.class_token) {
    const at::Tensor token =
        params.Get(at.class_token).view({1, 1, spec.hidden_size}).expand({num_tiles, 1, -1});
    x = at::cat({token, x}, 1);
  }
  at::Tensor positions = params.Get(at.positions);  // [tokens, hidden]
  if (spec.merge_size > 1 || tiles.positions_by_share) {
    positions = positions.index_select(0, Numbers(PositionsOfTile(spec), x.device()));
  }
  x = (x + positions).flatten(0, 1);
  return spec.first_norm.has_value() ? Normalize(x, NormOf(params, *spec.first_norm, at.first_norm))
                                     : x;
}

// x: [tiles * tokens, tower's hidden]. Returns [rows, hidden].
at::Tensor MergeTiles(const VisionSpec& spec, const MergerParameters& at,
                      const ParameterProvider& params, const at::Tensor& x, int64_t num_tiles) {
  const TileSpec& tiles = *spec.tiles;
  at::Tensor merged = x;
  if (tiles.class_token && !tiles.keeps_class_token) {
    merged =
        x.view({num_tiles, tiles.tokens(), spec.hidden_size}).narrow(1, 1, tiles.side * tiles.side);
  }
  return MergePatches(spec, at, params, merged, spec.merger_norm_size());
}

}  // namespace

at::Tensor EncodeTiles(const Transformer& model, const ParameterProvider& params,
                       const ImagePatches& images) {
  const VisionSpec& spec = *model.spec().vision;
  const TileSpec& tiles = *spec.tiles;
  const VisionParameters& at = model.table().vision();
  const int64_t num_tiles = images.pixel_values.size(0) / (tiles.side * tiles.side);
  const at::Tensor patches =
      TimesWeight(PixelsFor(params.Get(at.patch_weight), images.pixel_values), params,
                  at.patch_weight, at.patch_bias);
  Residual stream{EmbedTiles(spec, at, params, patches, num_tiles), {}};

  std::vector<int64_t> ends = {0};
  for (int64_t i = 0; i < num_tiles; ++i) ends.push_back(ends.back() + tiles.tokens());
  ImageAttention attention(ends);
  const Rotary rotary;
  const OpContext context{params};
  for (int64_t i = 0; i < tiles.num_read_layers; ++i) {
    const LayerSpec& layer = spec.layers[static_cast<size_t>(i)];
    const QkvShape heads{layer.attention.num_heads, layer.attention.num_kv_heads,
                         layer.attention.head_dim};
    const LayerAttention of_layer{layer.attention, heads, i, rotary, attention};
    TensorOps ops(context, of_layer);
    stream = LayerForward(ops, layer, at.layers[static_cast<size_t>(i)], stream);
  }
  at::Tensor x = Sum(stream);
  if (spec.last_norm.has_value()) x = Normalize(x, NormOf(params, *spec.last_norm, at.last_norm));
  const at::Tensor rows = MergeTiles(spec, at.merger, params, x, num_tiles);
  if (!tiles.canvas.has_value()) return rows;
  return PackRows(tiles, images.grids, rows, params.Get(at.newline));
}

}  // namespace tandem::model
