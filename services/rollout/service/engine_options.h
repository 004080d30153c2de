// Builds the engine's options from the run's configuration and the model's folder.
#ifndef TANDEM_SERVICES_ROLLOUT_SERVICE_ENGINE_OPTIONS_H_
#define TANDEM_SERVICES_ROLLOUT_SERVICE_ENGINE_OPTIONS_H_

#include "absl/status/statusor.h"
#include "common/io/model_config.h"
#include "common/model/model_spec.h"
#include "services/rollout/engine/engine.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::rollout {

// Leaves kv_cache_bytes to CacheBytes(). `local_rank`: this rank's index on its host. Errors: those of host::ChooseDevice(); INVALID_ARGUMENT if the model cannot be split over
// rollout.tensor_model_parallel_size ranks.
absl::StatusOr<EngineOptions> MakeEngineOptions(const config::v1::RunConfig& config,
                                                const io::ModelConfig& folder,
                                                const model::ModelSpec& spec, int local_rank);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SERVICE_ENGINE_OPTIONS_H_
