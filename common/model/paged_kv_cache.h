// PagedKvCache: the keys and values of every layer, in blocks of a fixed number of tokens.
//
//   ASSIGN_OR_RETURN(PagedKvCache cache, PagedKvCache::Create(options));
//   PagedAttention attention(cache, sequences);   // writes and reads it
#ifndef TANDEM_COMMON_MODEL_PAGED_KV_CACHE_H_
#define TANDEM_COMMON_MODEL_PAGED_KV_CACHE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/layers/attention_spec.h"

namespace tandem::model {

struct PagedKvCacheOptions {
  int64_t num_layers = 0;
  int64_t num_blocks = 0;
  int64_t block_size = kKvTile;  // tokens; a multiple of kKvTile
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  at::ScalarType dtype = at::kFloat;  // float32 or bfloat16, like the model's activations
  at::Device device = at::kCPU;       // like the model's activations
};

// Owns the storage; the block manager assigns blocks to sequences. Thread-compatible. On the CPU
// the system provides memory when a block is first written. On a GPU Create() allocates all of it,
// plus padding_block(), an extra block that takes the writes of tokens that pad a batch.
class PagedKvCache {
 public:
  // INVALID_ARGUMENT for invalid sizes; RESOURCE_EXHAUSTED if the allocation fails.
  static absl::StatusOr<PagedKvCache> Create(const PagedKvCacheOptions& options);

  // Bytes that one block takes in all layers.
  static int64_t BytesPerBlock(const PagedKvCacheOptions& options);

  const PagedKvCacheOptions& options() const { return options_; }
  int64_t padded_head_dim() const { return padded_head_dim_; }

  // [num_blocks, num_kv_heads, block_size / kKvTile, head_dim, kKvTile]; on a GPU
  // [num_blocks + 1, num_kv_heads, block_size, head_dim]
  const at::Tensor& keys(int64_t layer) const { return keys_[layer]; }
  // [num_blocks, num_kv_heads, block_size, padded_head_dim]; on a GPU like the keys
  const at::Tensor& values(int64_t layer) const { return values_[layer]; }

  // GPU only: the block for tokens that pad a batch.
  int32_t padding_block() const { return static_cast<int32_t>(options_.num_blocks); }

  // Copies a block in every layer; on a GPU the copy is ordered on the current stream.
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

  PagedKvCacheOptions options_;
  int64_t padded_head_dim_ = 0;
  std::vector<at::Tensor> keys_;
  std::vector<at::Tensor> values_;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_PAGED_KV_CACHE_H_
