// Initializes the masters of a rank's shards, from a model folder or a seed.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_SHARD_INIT_H_
#define TANDEM_SERVICES_TRAINER_FSDP_SHARD_INIT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/io/model_folder.h"
#include "common/model/model_spec.h"
#include "common/model/parameter_table.h"
#include "services/trainer/fsdp/sharded_model.h"

namespace tandem::trainer {

// Reads this rank's part of every tensor of the table and no other bytes of the files; a few MiB
// are resident at a time, or one tensor if the folder stores it transposed. Errors are those of
// model::LoadParameters.
absl::Status LoadShards(const io::ModelFolder& folder, const model::ParameterTable& table,
                        std::vector<UnitShard>& shards);

// Like model::RandomInit(): the same model for any number of ranks.
void DrawShards(const model::ModelSpec& spec, uint64_t seed, const model::ParameterTable& table,
                std::vector<UnitShard>& shards);

// Draws only the value head, if the table has one and the folder has not: normal with
// initializer_range, its bias 0.
void DrawMissingValueHead(const model::ModelSpec& spec, uint64_t seed,
                          const io::ModelFolder& folder, const model::ParameterTable& table,
                          std::vector<UnitShard>& shards);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_SHARD_INIT_H_
