#include "common/model/vision_tower.h"

#include <ATen/ops/argsort.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "common/model/activation.h"
#include "common/model/image_attention.h"
#include "common/model/layers/layer_forward.h"
#include "common/model/layers/tensor_ops.h"
#include "common/model/linear.h"
#include "common/model/rotary_frequencies.h"

namespace tandem::model {
namespace {

at::Tensor Product(const at::Tensor& x, const ParameterProvider& params, int weight, int bias) {
  return Linear(x, params.Get(weight),
                bias < 0 ? std::nullopt : std::optional<at::Tensor>(params.Get(bias)),
                params.Packed(weight));
}

at::Tensor LongTensor(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

// Cosines and sines of the patches, in the order of pixel_values: half of the pairs turn by a patch's
// row, half by its column.
RotaryAngles AnglesOfPatches(const VisionSpec& spec, const std::vector<ImageGrid>& grids,
                             const at::Device& device) {
  std::vector<int64_t> rows;
  std::vector<int64_t> columns;
  const int64_t merge = spec.merge_size;
  for (const ImageGrid& grid : grids) {
    for (int64_t row = 0; row < grid.rows; row += merge) {
      for (int64_t column = 0; column < grid.columns; column += merge) {
        for (int64_t i = 0; i < merge * merge; ++i) {
          rows.push_back(row + i / merge);
          columns.push_back(column + i % merge);
        }
      }
    }
  }
  const int64_t head_dim = spec.layers.front().attention.head_dim;
  const RotaryFrequencies frequencies = FrequenciesOf(spec.rope, head_dim / 2, /*length=*/0);
  const at::Tensor inverse = at::tensor(frequencies.inverse, at::kFloat);
  const RotaryAngles by_row = AnglesOf(LongTensor(rows).to(device), inverse);
  const RotaryAngles by_column = AnglesOf(LongTensor(columns).to(device), inverse);
  return {at::cat({by_row.cos, by_column.cos}, 1), at::cat({by_row.sin, by_column.sin}, 1)};
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

std::vector<int64_t> EndsOf(const std::vector<ImageGrid>& grids) {
  std::vector<int64_t> ends = {0};
  for (const ImageGrid& grid : grids) ends.push_back(ends.back() + grid.num_patches());
  return ends;
}

// Puts the patches of merged row order[i] at place i. x: [num_patches, width].
at::Tensor Ordered(const at::Tensor& x, const at::Tensor& order, int64_t patches_per_row) {
  return x.unflatten(0, {-1, patches_per_row}).index_select(0, order).flatten(0, 1);
}

// x: [num_patches, tower's hidden]. Returns [num_rows, hidden].
at::Tensor Merge(const VisionSpec& spec, const VisionParameters& at,
                 const ParameterProvider& params, const at::Tensor& x) {
  const at::Tensor normed = Normalize(x, NormOf(params, spec.merger_norm, at.merger_norm));
  const at::Tensor merged = normed.contiguous().view({-1, spec.merged_size()});
  const at::Tensor up = Product(merged, params, at.merger_up_weight, at.merger_up_bias);
  const ActivationFunction gelu{Activation::kGelu, /*gated=*/false, {}};
  return Product(Activate(up, gelu), params, at.merger_down_weight, at.merger_down_bias);
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
  const at::Tensor& patches = params.Get(at.patch_weight);
  at::Tensor x = Product(images.pixel_values.to(patches.options()), params, at.patch_weight, -1);

  Rotary rotary;
  rotary.ropes.push_back(AnglesOfPatches(spec, images.grids, x.device()));
  ImageAttention whole(ends);
  std::optional<ImageAttention> windowed;
  at::Tensor order;
  if (spec.window_size > 0) {
    Windows windows = WindowsOf(spec, images.grids);
    order = LongTensor(windows.order).to(x.device());
    windowed.emplace(std::move(windows.ends));
    // Windows do not leave an image, so that its patches stay together.
    x = Ordered(x, order, spec.patches_per_row());
    RotaryAngles& angles = rotary.ropes.front();
    angles.cos = Ordered(angles.cos, order, spec.patches_per_row());
    angles.sin = Ordered(angles.sin, order, spec.patches_per_row());
  }

  const OpContext context{params};
  Residual stream{x, {}};
  for (int64_t i = 0; i < spec.num_layers(); ++i) {
    const LayerSpec& layer = spec.layers[static_cast<size_t>(i)];
    const AttentionSpec& attention = layer.attention;
    const QkvShape heads{attention.num_heads, attention.num_kv_heads, attention.head_dim};
    const LayerAttention of_layer{attention, heads, i, rotary,
                                  spec.HasWindow(i) ? *windowed : whole};
    TensorOps ops(context, of_layer);
    stream = LayerForward(ops, layer, at.layers[static_cast<size_t>(i)], stream);
  }
  const at::Tensor rows = Merge(spec, at, params, Sum(stream));
  return order.defined() ? rows.index_select(0, at::argsort(order)) : rows;
}

at::Tensor PutImages(const at::Tensor& x, const at::Tensor& tokens, const at::Tensor& rows) {
  return at::index_copy(x, 0, tokens, rows.to(x.scalar_type()));
}

}  // namespace tandem::model
