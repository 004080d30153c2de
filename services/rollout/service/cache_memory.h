// Divides a rank's memory among its weights and its KV cache.
#ifndef TANDEM_SERVICES_ROLLOUT_SERVICE_CACHE_MEMORY_H_
#define TANDEM_SERVICES_ROLLOUT_SERVICE_CACHE_MEMORY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/comm/process_group.h"
#include "common/model/transformer.h"
#include "services/rollout/engine/engine.h"

namespace tandem::rollout {

// Sets `options`' staged_on and kv_cache_bytes; the weights are not in memory yet. On a GPU weights
// are received in its memory if two copies of them leave enough (common/model/gpu_memory.h), else in
// host memory. `megabytes`: rollout.kv_cache_megabytes, or if it is 0 the device's default: on a GPU
// a share of what is free beside the weights and the states of linear attention, the least of all
// ranks. `ranks`: those of a tensor-parallel engine, or null; then collective. Errors: those of CUDA and of the group.
absl::Status DivideMemory(int64_t megabytes, const model::Transformer& model,
                          comm::ProcessGroup* ranks, EngineOptions& options);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SERVICE_CACHE_MEMORY_H_
