// How an engine divides the memory of its device: for engines and for planners.
#ifndef TANDEM_COMMON_MODEL_GPU_MEMORY_H_
#define TANDEM_COMMON_MODEL_GPU_MEMORY_H_

#include <algorithm>
#include <cstdint>

namespace tandem::model {

// The KV cache's memory where rollout.kv_cache_megabytes is 0.
inline constexpr int64_t kDefaultCacheBytesOnCpu = int64_t{512} << 20;

// Rows of encoded images that an engine keeps, at most. 4,096 rows of a width of 3,584 in bfloat16 take
// 29 MB.
inline constexpr int64_t kImageRowBytes = int64_t{256} << 20;

// Half of the GPU memory that is free beside the weights and recurrent states: the rest is for the
// tensors of a step, captured graphs, and a trainer rank on the same GPU.
inline int64_t DefaultCacheBytesOnGpu(int64_t free_bytes) {
  return std::max<int64_t>(0, free_bytes) / 2;
}

// Whether weight updates are received in the GPU's memory, beside the live weights. That must leave
// the KV cache that is stated (0: none is), with recurrent states, and a quarter of the free memory for
// all else.
inline bool StagesWeightsOnGpu(int64_t free_bytes, int64_t weight_bytes, int64_t cache_bytes) {
  return 2 * weight_bytes + cache_bytes <= free_bytes / 4 * 3;
}

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_GPU_MEMORY_H_
