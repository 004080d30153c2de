// The samples of a group begin with one prompt: what they have in common is computed once.
#ifndef TANDEM_SERVICES_TRAINER_DATA_SHARED_PREFIX_H_
#define TANDEM_SERVICES_TRAINER_DATA_SHARED_PREFIX_H_

#include <c10/core/Device.h>

#include <cstdint>

#include "services/trainer/data/packed_batch.h"

namespace tandem::trainer {

// Whether a model on the device, whose sequences are spread over so many ranks, computes what its
// sequences have in common once: the kernels of a CPU do.
inline bool SharesPrefixes(at::Device device, int64_t sequence_ranks) {
  return device.is_cpu() && sequence_ranks == 1;
}

// The batch without the leading tokens that a sequence has in common with one before it, of which
// its `prefixes` tell; predictions from these are made from the other's rows, in the same order.
// The batch is on the CPU and its sequences are whole. Its results are the same, its gradients but
// for the order of sums. A sequence shares with the last one before it that is whole itself, so
// samples of a group lie together.
PackedBatch SharePrefixes(const PackedBatch& whole);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_DATA_SHARED_PREFIX_H_
