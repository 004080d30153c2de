// Loads a run's configuration from YAML files and overrides.
//
//   config::Places places;
//   ASSIGN_OR_RETURN(config::v1::RunConfig config,
//                    config::LoadRunConfig({"run.yaml"}, {"actor.optim.lr=3e-4"}, &places));
//   RETURN_IF_ERROR(config::CheckFiles(config, {.train_files = true}, places));
//
// Precedence: common/config/defaults.yaml, then the files in order, then the overrides; later ones
// win. Sections merge key by key; lists replace one another.
#ifndef TANDEM_COMMON_CONFIG_LOAD_H_
#define TANDEM_COMMON_CONFIG_LOAD_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/place.h"
#include "common/config/validation.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::config {

// The result states every value, run_dir included. All errors are INVALID_ARGUMENT, as many as one
// pass can find, one per line: "run.yaml:12: actor.optim.lrr: unknown key; did you mean 'lr'?
// (known: ...)". `places`, if not null, receives where each value was stated; `support` says which
// choices are accepted.
absl::StatusOr<v1::RunConfig> LoadRunConfig(const std::vector<std::string>& files,
                                            const std::vector<std::string>& overrides,
                                            Places* places = nullptr,
                                            Support support = Support::kThisBuild);

// Returns the defaults alone.
v1::RunConfig DefaultRunConfig();

}  // namespace tandem::config

#endif  // TANDEM_COMMON_CONFIG_LOAD_H_
