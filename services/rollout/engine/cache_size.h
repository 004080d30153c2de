// Sizes the KV cache from the engine's options and the model.
#ifndef TANDEM_SERVICES_ROLLOUT_ENGINE_CACHE_SIZE_H_
#define TANDEM_SERVICES_ROLLOUT_ENGINE_CACHE_SIZE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/model/paged_kv_cache.h"
#include "common/model/transformer.h"
#include "services/rollout/engine/engine.h"

namespace tandem::rollout {

struct CacheSize {
  model::PagedKvCacheOptions cache;  // of this rank
  // Longest sequence. Never exceeds the cache, so every request can run alone.
  int64_t max_model_len = 0;
};

// Ranks of one replica with the same options get the same number of blocks. INVALID_ARGUMENT if the
// options do not fit the model.
absl::StatusOr<CacheSize> SizeCache(const EngineOptions& options, const model::Transformer& model);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_ENGINE_CACHE_SIZE_H_
