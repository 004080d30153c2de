#include "common/model/paged_kv_cache.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/model/kernels/large_pages.h"
#include "common/model/kernels/round_up.h"
#include "common/model/release_pages.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

using kernels::RoundUp;

CacheGroups GroupsOf(const PagedKvCacheOptions& options) {
  return GroupLayers(
      options.windows.empty() ? std::vector<Window>(options.num_layers) : options.windows,
      options.sizes);
}

// What each layer caches.
std::vector<CacheSpec> LayersOf(const PagedKvCacheOptions& options) {
  if (!options.layers.empty()) return options.layers;
  return std::vector<CacheSpec>(static_cast<size_t>(options.num_layers),
                                {.num_kv_heads = options.num_kv_heads,
                                 .head_dim = options.head_dim,
                                 .v_head_dim = options.value_dim(),
                                 .shared = options.shared});
}

// The elements of a block, in all layers that share it.
int64_t BlockElements(const PagedKvCacheOptions& options, const CacheGroups& groups) {
  const std::vector<CacheSpec> layers = LayersOf(options);
  std::vector<int64_t> of_group(static_cast<size_t>(groups.num_groups()));
  int64_t most = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!options.windows.empty() && options.windows[i] == kNoCache) continue;
    int64_t& elements = of_group[groups.layers[i].group];
    elements += CacheElementsPerToken(layers[i], /*on_gpu=*/!options.device.is_cpu());
    most = std::max(most, elements);
  }
  return options.block_size * most;
}

absl::Status CheckLayers(const PagedKvCacheOptions& options) {
  const auto invalid = [](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("KV cache: ", what));
  };
  if (options.layers.empty() && options.sizes.empty()) return absl::OkStatus();
  const auto num_layers = static_cast<size_t>(options.num_layers);
  const size_t num_sizes = options.device.is_cpu() ? num_layers : 0;
  if (options.layers.size() != num_layers || options.sizes.size() != num_sizes) {
    return invalid(absl::StrCat("expected what ", options.num_layers, " layers cache and ",
                                num_sizes, " sizes on ", options.device.str(), ", found ",
                                options.layers.size(), " with ", options.sizes.size(), " sizes"));
  }
  for (size_t i = 0; i < num_layers; ++i) {
    const CacheSpec& layer = options.layers[i];
    if (!options.windows.empty() && options.windows[i] == kNoCache) continue;
    if (layer.shared) return invalid(absl::StrCat("layer ", i, " shares keys and values"));
    const int64_t size = options.sizes.empty() ? 1 : options.sizes[i];
    if (layer.num_kv_heads < 1 || layer.head_dim < 1 || layer.v_head_dim < 1 || size < 1) {
      return invalid(absl::StrCat("expected positive sizes of layer ", i, ", found ",
                                  layer.num_kv_heads, " KV heads with ", layer.head_dim, " and ",
                                  layer.v_head_dim, " elements, which count ", size));
    }
  }
  return absl::OkStatus();
}

void CopyRow(at::Tensor& blocks, int64_t from, int64_t to) {
  const size_t bytes = blocks.nbytes() / blocks.size(0);
  char* base = static_cast<char*>(blocks.mutable_data_ptr());
  std::memcpy(base + to * bytes, base + from * bytes, bytes);
}

}  // namespace

int64_t PagedKvCache::BytesPerBlock(const PagedKvCacheOptions& options) {
  return BlockElements(options, GroupsOf(options)) * (options.dtype == at::kFloat ? 4 : 2);
}

absl::StatusOr<PagedKvCache> PagedKvCache::Create(const PagedKvCacheOptions& o) {
  const bool has_heads = !o.layers.empty() || (o.num_kv_heads > 0 && o.head_dim > 0);
  if (o.num_layers < 1 || o.num_blocks < 1 || !has_heads || o.v_head_dim < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "KV cache: expected positive sizes, found ", o.num_layers, " layers, ", o.num_blocks,
        " blocks, ", o.num_kv_heads, " KV heads, head_dim ", o.head_dim));
  }
  if (o.shared && (o.num_kv_heads != 1 || o.value_dim() > o.head_dim)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "KV cache with shared values: expected 1 KV head whose value is part of its key, found ",
        o.num_kv_heads, " with ", o.value_dim(), " of ", o.head_dim, " elements"));
  }
  if (o.block_size < kKvTile || o.block_size % kKvTile != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("block_size: expected a multiple of ", kKvTile, ", found ", o.block_size));
  }
  if (o.dtype != at::kFloat && o.dtype != at::kBFloat16) {
    return absl::InvalidArgumentError(absl::StrCat(
        "KV cache: expected dtype float32 or bfloat16, found ", c10::toString(o.dtype)));
  }
  if (!o.windows.empty() && static_cast<int64_t>(o.windows.size()) != o.num_layers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "KV cache: expected the windows of ", o.num_layers, " layers, found ", o.windows.size()));
  }
  RETURN_IF_ERROR(CheckLayers(o));
  PagedKvCache cache;
  cache.options_ = o;
  cache.groups_ = GroupsOf(o);
  cache.layers_ = LayersOf(o);
  RETURN_IF_ERROR(cache.Allocate());
  RecurrentStateOptions states = o.states;
  states.device = o.device;
  ASSIGN_OR_RETURN(cache.states_, RecurrentStates::Create(states));
  return cache;
}

void PagedKvCache::AllocateOnDevice(const at::TensorOptions& type) {
  const PagedKvCacheOptions& o = options_;
  on_device_ = at::empty(
      {2 * groups_.layers_per_block, o.num_blocks + 1, o.num_kv_heads, o.block_size, o.head_dim},
      type);
  for (const LayerCachePlace& place : groups_.layers) {
    keys_.push_back(on_device_[2 * place.index]);
    values_.push_back(on_device_[2 * place.index + 1]);
  }
}

void PagedKvCache::AllocatePlaces(const at::TensorOptions& type) {
  const PagedKvCacheOptions& o = options_;
  std::vector<at::Tensor> keys;
  std::vector<at::Tensor> values;
  for (int64_t i = 0; i < groups_.layers_per_block; ++i) {
    if (o.shared) {
      // Values are read in whole registers, beyond the last row too.
      const int64_t elements = o.num_blocks * o.block_size * o.head_dim;
      keys.push_back(at::empty({elements + kKvTile}, type)
                         .narrow(0, 0, elements)
                         .view({o.num_blocks, 1, o.block_size, o.head_dim}));
      values.push_back(keys.back());
      continue;
    }
    keys.push_back(at::empty(
        {o.num_blocks, o.num_kv_heads, o.block_size / kKvTile, o.head_dim, kKvTile}, type));
    values.push_back(at::empty(
        {o.num_blocks, o.num_kv_heads, o.block_size, RoundUp(o.value_dim(), kKvTile)}, type));
  }
  for (const LayerCachePlace& place : groups_.layers) {
    keys_.push_back(keys[place.index]);
    values_.push_back(values[place.index]);
  }
  memory_ = std::move(keys);
  if (!o.shared) memory_.insert(memory_.end(), values.begin(), values.end());
}

// The keys and values of a block's layers lie one after the other.
void PagedKvCache::AllocateBlocks(const at::TensorOptions& type) {
  const PagedKvCacheOptions& o = options_;
  const bool on_gpu = !o.device.is_cpu();
  const int64_t num_blocks = o.num_blocks + (on_gpu ? 1 : 0);
  const int64_t block = BlockElements(o, groups_);
  const at::Tensor blocks = at::empty({num_blocks, block}, type);
  std::vector<int64_t> end(
      static_cast<size_t>(groups_.num_groups()));  // of what a group has so far
  for (int64_t i = 0; i < o.num_layers; ++i) {
    keys_.emplace_back();
    values_.emplace_back();
    if (!o.windows.empty() && o.windows[i] == kNoCache) continue;
    const CacheSpec& layer = layers_[i];
    int64_t& offset = end[groups_.layers[i].group];
    const int64_t k_dim = layer.head_dim;
    if (on_gpu) {
      const auto take = [&](int64_t dim, int64_t row) {
        return blocks.as_strided({num_blocks, layer.num_kv_heads, o.block_size, dim},
                                 {block, o.block_size * row, row, 1}, offset);
      };
      keys_[i] = take(k_dim, k_dim);
      if (layer.shared) values_[i] = take(layer.v_head_dim, k_dim);
      offset += layer.num_kv_heads * o.block_size * k_dim;
      if (layer.shared) continue;
      values_[i] = take(layer.v_head_dim, layer.v_head_dim);
      offset += layer.num_kv_heads * o.block_size * layer.v_head_dim;
      continue;
    }
    keys_[i] = blocks.as_strided(
        {o.num_blocks, layer.num_kv_heads, o.block_size / kKvTile, k_dim, kKvTile},
        {block, o.block_size * k_dim, kKvTile * k_dim, kKvTile, 1}, offset);
    offset += layer.num_kv_heads * o.block_size * k_dim;
    const int64_t v_dim = RoundUp(layer.v_head_dim, kKvTile);
    values_[i] = blocks.as_strided({o.num_blocks, layer.num_kv_heads, o.block_size, v_dim},
                                   {block, o.block_size * v_dim, v_dim, 1}, offset);
    offset += layer.num_kv_heads * o.block_size * v_dim;
  }
  if (on_gpu) {
    on_device_ = blocks.unsqueeze(0);
  } else {
    memory_ = {blocks};
  }
}

absl::Status PagedKvCache::Allocate() {
  const PagedKvCacheOptions& o = options_;
  const auto type = at::TensorOptions().dtype(o.dtype).device(o.device);
  try {
    const bool one_size = o.layers.empty() && !o.shared && o.value_dim() == o.head_dim;
    if (!o.device.is_cpu() && one_size) {
      AllocateOnDevice(type);
    } else if (o.device.is_cpu() && o.layers.empty()) {
      AllocatePlaces(type);
    } else {
      AllocateBlocks(type);
    }
    // Attention reads blocks from all over the cache at each token.
    for (const at::Tensor& tensor : memory_) {
      kernels::WantLargePages(tensor.mutable_data_ptr(), tensor.nbytes());
    }
  } catch (const std::exception&) {
    FreeTensors();
    return absl::ResourceExhaustedError(absl::StrCat(
        "KV cache: ", o.device.is_cpu() ? "the system" : o.device.str(), " refused ",
        o.num_blocks * BytesPerBlock(o) >> 20, " MiB; lower rollout.kv_cache_megabytes"));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> PagedKvCache::TakeMemory() {
  if (!keys_.empty()) return false;
  RETURN_IF_ERROR(Allocate());
  if (absl::Status taken = states_.TakeMemory(); !taken.ok()) {
    FreeTensors();
    return taken;
  }
  return true;
}

void PagedKvCache::FreeTensors() {
  keys_.clear();
  values_.clear();
  memory_.clear();
  on_device_.reset();
}

void PagedKvCache::CopyBlock(int64_t from, int64_t to) {
  if (!options_.device.is_cpu()) {
    on_device_.select(1, to).copy_(on_device_.select(1, from));
    return;
  }
  for (at::Tensor& blocks : memory_) CopyRow(blocks, from, to);
}

void PagedKvCache::ReleaseMemory() {
  states_.ReleaseMemory();
  if (!options_.device.is_cpu()) {
    FreeTensors();
    return;
  }
  for (const at::Tensor& tensor : memory_) ReleasePages(tensor.data_ptr(), tensor.nbytes());
}

}  // namespace tandem::model
