// Reads this rank's shards from a checkpoint, whatever mesh and units wrote it.
//
//   ASSIGN_OR_RETURN(auto reader, checkpoint::CheckpointReader::Open(folder));
//   RETURN_IF_ERROR(VerifyShards(reader, models));    // on every rank, before any rank continues
//   RETURN_IF_ERROR(ReadShards(reader, models));
#ifndef TANDEM_SERVICES_TRAINER_CHECKPOINT_LOAD_SHARD_H_
#define TANDEM_SERVICES_TRAINER_CHECKPOINT_LOAD_SHARD_H_

#include <vector>

#include "absl/status/status.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "services/trainer/checkpoint/checkpointed_model.h"

namespace tandem::trainer {

// Reads everything the rank needs and changes nothing. FAILED_PRECONDITION, with UnloadedParams:
// models or tensors differ; or, naming it, a tensor is trained now and was frozen when it was
// saved. Both are checked before any data is read. DATA_LOSS names the damaged file and tensor.
absl::Status VerifyShards(checkpoint::CheckpointReader& reader,
                          const std::vector<CheckpointedModel>& models);

// Replaces masters, moments and the optimizers' step counts. An error leaves a mix of old and new.
absl::Status ReadShards(checkpoint::CheckpointReader& reader,
                        const std::vector<CheckpointedModel>& models);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_CHECKPOINT_LOAD_SHARD_H_
