#include "services/rollout/service/served_model.h"

#include "absl/strings/str_cat.h"
#include "common/io/model_folder.h"
#include "common/model/reward_model_spec.h"
#include "common/status/status_macros.h"
#include "services/rollout/receive/local_weight_load.h"

namespace tandem::rollout {

absl::StatusOr<model::ModelSpec> ReadServedSpec(const io::ModelConfig& folder, bool commit_folder) {
  if (!model::IsRewardModel(folder.json)) return model::ParseModelSpec(folder.json, folder.path);
  if (!commit_folder) {
    return absl::FailedPreconditionError(
        absl::StrCat(folder.path,
                     " is a reward model's, which no trainer trains; give its folder to "
                     "--model, and the policy's to model.path"));
  }
  return model::ParseRewardModelSpec(folder.json, folder.path);
}

absl::Status CommitFolder(const std::string& path, const model::ParameterTable& table,
                          WeightReceiver& receiver) {
  ASSIGN_OR_RETURN(const io::ModelFolder weights, io::ModelFolder::Open(path));
  if (table.spec().value_head) {
    RETURN_IF_ERROR(model::CheckRewardHead(weights));
  }
  return LoadLocalWeights(weights, table, receiver);
}

}  // namespace tandem::rollout
