#include "common/model/model_cache.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/model/cache_groups.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

// Whether all layers with keys and values cache as many elements in as many heads.
bool LayersAreAlike(const ModelSpec& spec) {
  const AttentionSpec& attention = spec.full_attention();
  return std::all_of(spec.layers.begin(), spec.layers.end(), [&](const LayerSpec& layer) {
    return layer.attention.delta.has_value() ||
           (layer.attention.num_kv_heads == attention.num_kv_heads &&
            layer.attention.head_dim == attention.head_dim &&
            layer.attention.value_dim() == attention.value_dim() &&
            layer.attention.latent == attention.latent);
  });
}

absl::Status CheckNoLatents(const ModelSpec& spec) {
  for (int64_t i = 0; i < spec.num_layers(); ++i) {
    if (!spec.layers[i].attention.latent.has_value()) continue;
    return absl::UnimplementedError(
        absl::StrCat("the model's layers cache keys and values of different sizes, and layer ", i,
                     " has latent attention, with which all layers must have one size"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PagedKvCacheOptions> CacheOfModel(const ModelSpec& spec, TensorParallel parallel,
                                                 LatentCache latents, at::Device device) {
  const bool on_gpu = !device.is_cpu();
  const CacheSpec of_layer = CacheOf(spec.full_attention(), parallel, latents);
  PagedKvCacheOptions options{.num_layers = spec.num_layers(),
                              .num_kv_heads = of_layer.num_kv_heads,
                              .head_dim = of_layer.head_dim,
                              .v_head_dim = of_layer.v_head_dim,
                              .shared = of_layer.shared,
                              .device = device,
                              .windows = CacheWindows(spec, on_gpu)};
  if (LayersAreAlike(spec)) return options;
  RETURN_IF_ERROR(CheckNoLatents(spec));
  // On a GPU a block holds all layers, whatever their sizes.
  if (!on_gpu) options.sizes = CacheSizes(spec, parallel.size, on_gpu);
  for (const LayerSpec& layer : spec.layers) {
    options.layers.push_back(CacheOf(layer.attention, parallel));
  }
  return options;
}

RecurrentStateOptions StatesOfModel(const ModelSpec& spec, TensorParallel parallel, int64_t count,
                                    at::ScalarType dtype) {
  if (!spec.HasLinearAttention()) return {};
  RecurrentStateOptions states{.count = count, .dtype = dtype};
  for (const LayerSpec& layer : spec.layers) {
    std::optional<DeltaSpec>& delta = states.layers.emplace_back(layer.attention.delta);
    if (delta.has_value()) delta = PartOf(*delta, parallel);
  }
  return states;
}

}  // namespace tandem::model
