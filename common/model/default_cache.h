// The KV cache's memory where rollout.kv_cache_megabytes is 0: for engines and for planners.
#ifndef TANDEM_COMMON_MODEL_DEFAULT_CACHE_H_
#define TANDEM_COMMON_MODEL_DEFAULT_CACHE_H_

#include <algorithm>
#include <cstdint>

namespace tandem::model {

inline constexpr int64_t kDefaultCacheBytesOnCpu = int64_t{512} << 20;

// Of the GPU memory that is free beside the weights, half: the rest is for the tensors of a step,
// captured graphs, and a trainer rank on the same GPU.
inline int64_t DefaultCacheBytesOnGpu(int64_t free_bytes) {
  return std::max<int64_t>(0, free_bytes) / 2;
}

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_DEFAULT_CACHE_H_
