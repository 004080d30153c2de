// UnitShard: one rank's part of one unit of a sharded model. The model owns it; the optimizer
// updates it, checkpoints copy it and weight updates send it.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_UNIT_SHARD_H_
#define TANDEM_SERVICES_TRAINER_FSDP_UNIT_SHARD_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "services/trainer/fsdp/shard_digests.h"

namespace tandem::trainer {

// Copies share their tensors.
struct UnitShard {
  // [padded_numel / ranks], with `ranks` those sharing a copy. float32; of a frozen unit in compute
  // dtype.
  at::Tensor master;
  // The master in compute dtype, as of the last MasterChanged(); the master itself if no cast is
  // needed. If that is the wire type of a weight update, the update sends from here.
  at::Tensor computed;
  // float32, the same shape; sums over micro-batches and, after ReduceGradients(), all ranks.
  // Undefined if the unit or the model is frozen.
  at::Tensor grad;
  int64_t numel = 0;         // of the unit
  int64_t padded_numel = 0;  // a multiple of ranks
  int64_t offset = 0;        // first element of the unit that this rank owns
  // Digests of `computed`, as of the last MasterChanged(); null on a device, or if the model does
  // not keep them.
  std::shared_ptr<ShardDigests> digests;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_UNIT_SHARD_H_
