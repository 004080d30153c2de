// What a rank has to save of a model: its shards of the masters and of the optimizer's moments, and
// where they lie in the logical tensors (common/checkpoint/layout.h).
#ifndef TANDEM_SERVICES_TRAINER_CHECKPOINT_CHECKPOINTED_MODEL_H_
#define TANDEM_SERVICES_TRAINER_CHECKPOINT_CHECKPOINTED_MODEL_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "common/checkpoint/layout.h"
#include "common/checkpoint/manifest.h"
#include "services/trainer/fsdp/sharded_model.h"
#include "services/trainer/optim/adamw.h"

namespace tandem::trainer {

// Both outlive whoever holds this.
struct CheckpointedModel {
  std::string name;  // "policy", "critic"
  ShardedModel* model = nullptr;
  AdamW* optimizer = nullptr;
};

// One of the flat float32 tensors that a rank holds of a unit, and what is in it.
struct ShardPart {
  std::string kind;                   // "master", "exp_avg", "exp_avg_sq"
  at::Tensor tensor;                  // [elements of the shard]
  std::vector<checkpoint::Run> runs;  // offsets into `tensor`
};

// In order of units, of each the master, then the two moments.
std::vector<ShardPart> ShardParts(const CheckpointedModel& model);

// What the manifest says of it.
checkpoint::ModelEntry DescribeModel(const CheckpointedModel& model);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_CHECKPOINT_CHECKPOINTED_MODEL_H_
