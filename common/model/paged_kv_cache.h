// PagedKvCache: the keys and values of every layer, in blocks of a fixed number of tokens. Layers
// with different windows use different blocks (cache_groups.h). Beside them, the states of layers with
// linear attention, which have no keys and values.
//
//   ASSIGN_OR_RETURN(PagedKvCache cache, PagedKvCache::Create(options));
//   PagedAttention attention(cache, sequences);   // writes and reads it
#ifndef TANDEM_COMMON_MODEL_PAGED_KV_CACHE_H_
#define TANDEM_COMMON_MODEL_PAGED_KV_CACHE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/cache_groups.h"
#include "common/model/layers/attention_spec.h"
#include "common/model/recurrent_states.h"

namespace tandem::model {

struct PagedKvCacheOptions {
  int64_t num_layers = 0;
  int64_t num_blocks = 0;
  int64_t block_size = kKvTile;  // tokens; a multiple of kKvTile
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;               // of keys
  int64_t v_head_dim = 0;             // of values; 0: head_dim
  bool shared = false;                // CacheSpec::shared
  at::ScalarType dtype = at::kFloat;  // float32 or bfloat16, like the model's activations
  at::Device device = at::kCPU;       // like the model's activations
  // Of each layer (LayerWindows()); empty: every layer sees all tokens.
  std::vector<Window> windows;
  // Where layers differ: what this rank caches of each, in place of the numbers above; and, on the CPU
  // alone, by what size each counts in a block, the same on all ranks (CacheSizes()). Empty: all alike.
  std::vector<CacheSpec> layers;
  std::vector<int64_t> sizes;
  RecurrentStateOptions states;  // whose device is that of the cache

  int64_t value_dim() const { return v_head_dim > 0 ? v_head_dim : head_dim; }
};

// Owns the storage; the block manager assigns blocks to sequences. Thread-compatible. On the CPU
// the system provides memory when a block is first written. On a GPU Create() allocates all of it,
// plus padding_block(), an extra block that takes the writes of tokens that pad a batch.
class PagedKvCache {
 public:
  // INVALID_ARGUMENT for invalid sizes; RESOURCE_EXHAUSTED if the allocation fails.
  static absl::StatusOr<PagedKvCache> Create(const PagedKvCacheOptions& options);

  // Bytes of one block, in all layers that share it.
  static int64_t BytesPerBlock(const PagedKvCacheOptions& options);

  const PagedKvCacheOptions& options() const { return options_; }
  const CacheGroups& groups() const { return groups_; }
  // What the layer caches of a token; its window has no meaning here.
  const CacheSpec& layer(int64_t layer) const { return layers_[layer]; }

  // Layers of different groups may get one tensor: they use different blocks of it.
  // [num_blocks, num_kv_heads, block_size / kKvTile, head_dim, kKvTile]; on a GPU
  // [num_blocks + 1, num_kv_heads, block_size, head_dim]
  // On the CPU dimensions come before the tokens of a tile: a register holds one dimension of
  // several keys, so their scores need no sum over lanes. With shared values, which are read as rows:
  // [num_blocks, 1, block_size, head_dim], keys and values in one.
  // Blocks lie side by side, but for those of layers that differ, and on a GPU where keys and values
  // differ: these are views of whole blocks.
  const at::Tensor& keys(int64_t layer) const { return keys_[layer]; }
  // [num_blocks, num_kv_heads, block_size, v_head_dim rounded up to kKvTile]; on a GPU like the keys,
  // with v_head_dim elements, which shared values have in the keys' memory.
  // The padding fills whole registers, so that rows are read without tails.
  const at::Tensor& values(int64_t layer) const { return values_[layer]; }

  // Empty for a model without linear attention.
  const RecurrentStates& states() const { return states_; }
  // Copies a sequence's state in all layers; on a GPU on the current stream.
  void CopyState(int64_t from, int64_t to) { states_.Copy(from, to); }

  // GPU only: the block for tokens that pad a batch.
  int32_t padding_block() const { return static_cast<int32_t>(options_.num_blocks); }

  // Copies a block in all layers that share it; on a GPU in one launch on the current stream.
  void CopyBlock(int64_t from, int64_t to);

  // Returns the memory of all blocks to the system; their contents are lost. On the CPU blocks can
  // be written again at once, and take memory as they are; on a GPU only after TakeMemory().
  void ReleaseMemory();

  // Allocates the memory again after ReleaseMemory(). Returns true if addresses may have changed:
  // on a GPU, after a release. RESOURCE_EXHAUSTED if the allocation fails.
  absl::StatusOr<bool> TakeMemory();

 private:
  PagedKvCache() = default;
  absl::Status Allocate();
  void AllocateOnDevice(const at::TensorOptions& type);
  // Of layers that are alike, and of others; on a GPU also of keys and values that differ.
  void AllocatePlaces(const at::TensorOptions& type);
  void AllocateBlocks(const at::TensorOptions& type);
  void FreeTensors();

  PagedKvCacheOptions options_;
  CacheGroups groups_;
  std::vector<CacheSpec> layers_;
  // Of each layer; layers at the same place of a block share a tensor.
  std::vector<at::Tensor> keys_;
  std::vector<at::Tensor> values_;
  RecurrentStates states_;
  // CPU only: the memory of these, the first dimension the blocks.
  std::vector<at::Tensor> memory_;
  at::Tensor on_device_;  // GPU only: likewise, but the second dimension the blocks, num_blocks + 1
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_PAGED_KV_CACHE_H_
