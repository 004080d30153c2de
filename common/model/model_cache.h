// What a rank's KV cache holds of a model's layers, from their specs.
//
//   ASSIGN_OR_RETURN(PagedKvCacheOptions options,
//                    CacheOfModel(spec, {}, LatentCache::kExpanded, at::kCPU));
//   options.num_blocks = 100;
//   ASSIGN_OR_RETURN(PagedKvCache cache, PagedKvCache::Create(options));
#ifndef TANDEM_COMMON_MODEL_MODEL_CACHE_H_
#define TANDEM_COMMON_MODEL_MODEL_CACHE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/model/model_spec.h"
#include "common/model/paged_kv_cache.h"
#include "common/model/tensor_parallel.h"

namespace tandem::model {

// The caller sets the numbers of blocks and of their tokens, the type, and the states of layers with
// linear attention. UNIMPLEMENTED for layers that cache keys and values of different sizes beside latent
// attention.
absl::StatusOr<PagedKvCacheOptions> CacheOfModel(const ModelSpec& spec, TensorParallel parallel,
                                                 LatentCache latents, at::Device device);

// The states of a rank's layers with linear attention, for so many sequences; empty for a model without.
RecurrentStateOptions StatesOfModel(const ModelSpec& spec, TensorParallel parallel, int64_t count,
                                    at::ScalarType dtype);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_MODEL_CACHE_H_
