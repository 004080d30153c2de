// Computes the common prefix of a group's samples, which share a prompt, only once.
#ifndef TANDEM_SERVICES_TRAINER_DATA_SHARED_PREFIX_H_
#define TANDEM_SERVICES_TRAINER_DATA_SHARED_PREFIX_H_

#include <c10/core/Device.h>

#include <cstdint>

#include "services/trainer/data/packed_batch.h"

namespace tandem::trainer {

// Whether a model on `device`, with its sequences split over `sequence_ranks`, computes common
// prefixes once. Only CPU kernels do.
inline bool SharesPrefixes(at::Device device, int64_t sequence_ranks) {
  return device.is_cpu() && sequence_ranks == 1;
}

// Returns the batch without the leading tokens that a sequence has in common with one before it, with
// equal routed_experts and the same images; `prefixes` describes them. Predictions from these tokens use the other sequence's rows, in the
// same order. `whole` is on the CPU and its sequences are complete. Results are the same; gradients
// differ only by the order of sums. A sequence shares with the last complete one before it, so
// samples of a group must be adjacent.
PackedBatch SharePrefixes(const PackedBatch& whole);

// Returns how many sequences have each token: float32 [num_tokens], on the CPU; 1 but for those of
// shared prefixes.
at::Tensor TokenUses(const PackedBatch& batch);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_DATA_SHARED_PREFIX_H_
