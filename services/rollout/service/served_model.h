// What a rollout reads of the folder that it serves.
#ifndef TANDEM_SERVICES_ROLLOUT_SERVICE_SERVED_MODEL_H_
#define TANDEM_SERVICES_ROLLOUT_SERVICE_SERVED_MODEL_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/model_config.h"
#include "common/model/model_spec.h"
#include "common/model/parameter_table.h"
#include "services/rollout/receive/weight_receiver.h"

namespace tandem::rollout {

// Reads the model's sizes. A reward model needs `commit_folder`: no trainer trains one. Errors: those of
// model::ParseModelSpec() and model::ParseRewardModelSpec(); FAILED_PRECONDITION without the folder's
// weights.
absl::StatusOr<model::ModelSpec> ReadServedSpec(const io::ModelConfig& folder, bool commit_folder);

// Makes the weights of the folder at `path` live as version 0. Errors: those of LoadLocalWeights(), and
// of model::CheckRewardHead() for a reward model.
absl::Status CommitFolder(const std::string& path, const model::ParameterTable& table,
                          WeightReceiver& receiver);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SERVICE_SERVED_MODEL_H_
