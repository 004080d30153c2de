// The part of a model that a rank saves: its shards of the masters and of the optimizer's moments,
// and their places in the logical tensors (common/checkpoint/layout.h).
#ifndef TANDEM_SERVICES_TRAINER_CHECKPOINT_CHECKPOINTED_MODEL_H_
#define TANDEM_SERVICES_TRAINER_CHECKPOINT_CHECKPOINTED_MODEL_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "common/checkpoint/layout.h"
#include "common/checkpoint/manifest.h"
#include "services/trainer/fsdp/sharded_model.h"
#include "services/trainer/optim/optimizer.h"

namespace tandem::trainer {

// Model and optimizer outlive every holder of this struct.
struct CheckpointedModel {
  std::string name;  // "policy", "critic"
  ShardedModel* model = nullptr;
  Optimizer* optimizer = nullptr;
};

// One flat tensor of a rank's shard of a unit, and the elements it holds. float32; the master of a
// frozen unit in compute dtype.
struct ShardPart {
  std::string kind;                   // "master", "exp_avg", ... (Optimizer::StateOf)
  at::Tensor tensor;                  // [elements of the shard, or those that have this kind]
  std::vector<checkpoint::Run> runs;  // offsets into `tensor`
};

// Parts in order of units; for each unit the master, then, unless it is frozen, the optimizer's state.
std::vector<ShardPart> ShardParts(const CheckpointedModel& model);

// Returns the model's entry in the manifest.
checkpoint::ModelEntry DescribeModel(const CheckpointedModel& model);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_CHECKPOINT_CHECKPOINTED_MODEL_H_
