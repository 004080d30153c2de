// The memory of a rank's KV cache.
#ifndef TANDEM_SERVICES_ROLLOUT_SERVICE_CACHE_MEMORY_H_
#define TANDEM_SERVICES_ROLLOUT_SERVICE_CACHE_MEMORY_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/comm/process_group.h"
#include "common/model/transformer.h"
#include "services/rollout/engine/engine.h"

namespace tandem::rollout {

// `megabytes` (rollout.kv_cache_megabytes), or if it is 0 the default of the device: on a GPU a
// share of what is free now beside the weights, which are not there yet; the least of all ranks.
// `ranks`: those of a tensor-parallel engine, or null; then collective. Errors: those of CUDA and of
// the group.
absl::StatusOr<int64_t> CacheBytes(int64_t megabytes, const EngineOptions& options,
                                   const model::Transformer& model, comm::ProcessGroup* ranks);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SERVICE_CACHE_MEMORY_H_
