// Reading what this rank holds out of a checkpoint, whatever mesh and units it was written with.
//
//   ASSIGN_OR_RETURN(auto reader, checkpoint::CheckpointReader::Open(folder));
//   RETURN_IF_ERROR(VerifyShards(reader, models));    // on every rank, before any goes on
//   RETURN_IF_ERROR(ReadShards(reader, models));
#ifndef TANDEM_SERVICES_TRAINER_CHECKPOINT_LOAD_SHARD_H_
#define TANDEM_SERVICES_TRAINER_CHECKPOINT_LOAD_SHARD_H_

#include <vector>

#include "absl/status/status.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "services/trainer/checkpoint/checkpointed_model.h"

namespace tandem::trainer {

// Changes nothing. FAILED_PRECONDITION, with UnloadedParams, where models or tensors differ, before
// a byte of them is read; DATA_LOSS names the file and tensor that is damaged. Reads all that the
// rank needs.
absl::Status VerifyShards(checkpoint::CheckpointReader& reader,
                          const std::vector<CheckpointedModel>& models);

// Replaces masters, moments and the optimizers' step counts. After an error they are a mix.
absl::Status ReadShards(checkpoint::CheckpointReader& reader,
                        const std::vector<CheckpointedModel>& models);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_CHECKPOINT_LOAD_SHARD_H_
