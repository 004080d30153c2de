#include "common/model/paged_kv_cache.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <exception>
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
  return GroupLayers(options.windows.empty() ? std::vector<Window>(options.num_layers)
                                             : options.windows);
}

void CopyRow(at::Tensor& blocks, int64_t from, int64_t to) {
  const size_t bytes = blocks.nbytes() / blocks.size(0);
  char* base = static_cast<char*>(blocks.mutable_data_ptr());
  std::memcpy(base + to * bytes, base + from * bytes, bytes);
}

}  // namespace

int64_t PagedKvCache::BytesPerBlock(const PagedKvCacheOptions& options) {
  const CacheSpec layer{.num_kv_heads = options.num_kv_heads,
                        .head_dim = options.head_dim,
                        .v_head_dim = options.value_dim(),
                        .shared = options.shared};
  const int64_t elements = CacheElementsPerToken(layer, /*on_gpu=*/!options.device.is_cpu());
  return GroupsOf(options).layers_per_block * options.block_size * elements *
         (options.dtype == at::kFloat ? 4 : 2);
}

absl::StatusOr<PagedKvCache> PagedKvCache::Create(const PagedKvCacheOptions& o) {
  if (o.num_layers < 1 || o.num_blocks < 1 || o.num_kv_heads < 1 || o.head_dim < 1 ||
      o.v_head_dim < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "KV cache: expected positive sizes, found ", o.num_layers, " layers, ", o.num_blocks,
        " blocks, ", o.num_kv_heads, " KV heads, head_dim ", o.head_dim));
  }
  if (o.shared && (o.num_kv_heads != 1 || o.value_dim() > o.head_dim)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "KV cache with shared values: expected 1 KV head whose value is part of its key, found ",
        o.num_kv_heads, " with ", o.value_dim(), " of ", o.head_dim, " elements"));
  }
  if (!o.device.is_cpu() && (o.shared || o.value_dim() != o.head_dim)) {
    return absl::UnimplementedError(
        absl::StrCat("KV cache on ", o.device.str(), ": expected values as large as keys, found ",
                     o.value_dim(), " and ", o.head_dim, " elements; use rollout.device=cpu"));
  }
  if (!o.device.is_cpu() && !o.states.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("KV cache on ", o.device.str(),
                     ": linear attention keeps its states on the CPU; use rollout.device=cpu"));
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
  PagedKvCache cache;
  cache.options_ = o;
  cache.groups_ = GroupsOf(o);
  cache.padded_value_dim_ = RoundUp(o.value_dim(), kKvTile);
  RETURN_IF_ERROR(cache.Allocate());
  ASSIGN_OR_RETURN(cache.states_, RecurrentStates::Create(o.states));
  return cache;
}

absl::Status PagedKvCache::Allocate() {
  const PagedKvCacheOptions& o = options_;
  const auto type = at::TensorOptions().dtype(o.dtype).device(o.device);
  try {
    if (!o.device.is_cpu()) {
      on_device_ = at::empty({2 * groups_.layers_per_block, o.num_blocks + 1, o.num_kv_heads,
                              o.block_size, o.head_dim},
                             type);
      for (int64_t i = 0; i < groups_.layers_per_block; ++i) {
        keys_.push_back(on_device_[2 * i]);
        values_.push_back(on_device_[2 * i + 1]);
      }
      return absl::OkStatus();
    }
    for (int64_t i = 0; i < groups_.layers_per_block; ++i) {
      if (o.shared) {
        // Values are read in whole registers, beyond the last row too.
        const int64_t elements = o.num_blocks * o.block_size * o.head_dim;
        keys_.push_back(at::empty({elements + kKvTile}, type)
                            .narrow(0, 0, elements)
                            .view({o.num_blocks, 1, o.block_size, o.head_dim}));
        values_.push_back(keys_.back());
        continue;
      }
      keys_.push_back(at::empty(
          {o.num_blocks, o.num_kv_heads, o.block_size / kKvTile, o.head_dim, kKvTile}, type));
      values_.push_back(
          at::empty({o.num_blocks, o.num_kv_heads, o.block_size, padded_value_dim_}, type));
    }
    // Attention reads blocks from all over the cache at each token.
    for (const auto* tensors : {&keys_, &values_}) {
      for (const at::Tensor& tensor : *tensors) {
        kernels::WantLargePages(tensor.mutable_data_ptr(), tensor.nbytes());
      }
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
  return true;
}

void PagedKvCache::FreeTensors() {
  keys_.clear();
  values_.clear();
  on_device_.reset();
}

void PagedKvCache::CopyBlock(int64_t from, int64_t to) {
  if (!options_.device.is_cpu()) {
    on_device_.select(1, to).copy_(on_device_.select(1, from));
    return;
  }
  for (int64_t i = 0; i < groups_.layers_per_block; ++i) {
    CopyRow(keys_[i], from, to);
    if (!options_.shared) CopyRow(values_[i], from, to);
  }
}

void PagedKvCache::ReleaseMemory() {
  if (!options_.device.is_cpu()) {
    FreeTensors();
    return;
  }
  states_.ReleaseMemory();
  for (const auto* tensors : {&keys_, &values_}) {
    for (const at::Tensor& tensor : *tensors) ReleasePages(tensor.data_ptr(), tensor.nbytes());
  }
}

}  // namespace tandem::model
