// Loads weights from a Hugging Face folder instead of a trainer: stages, digests and commits them
// like an update.
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_LOCAL_WEIGHT_LOAD_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_LOCAL_WEIGHT_LOAD_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/io/model_folder.h"
#include "common/model/parameter_table.h"
#include "services/rollout/receive/weight_receiver.h"

namespace tandem::rollout {

// Makes the folder's weights live as `policy_version`. Blocks. `table` must match the store's
// manifest. Errors: those of model::LoadParameters(), and FAILED_PRECONDITION if this or a newer
// version is live; the live weights stay unchanged then.
absl::Status LoadLocalWeights(const io::ModelFolder& folder, const model::ParameterTable& table,
                              WeightReceiver& receiver, int64_t policy_version = 0);

// The same for weights whose memory was released, from the folder at `path`. Call on the receiver's
// thread (WeightReceiver::RunSoon).
absl::Status ReloadLocalWeights(const std::string& path, const model::ParameterTable& table,
                                WeightStore& store, int64_t policy_version);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_LOCAL_WEIGHT_LOAD_H_
