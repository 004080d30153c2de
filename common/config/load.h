// The configuration of a run out of YAML files and overrides.
//
//   config::Places places;
//   ASSIGN_OR_RETURN(config::v1::RunConfig config,
//                    config::LoadRunConfig({"run.yaml", "more.yaml"}, {"actor.optim.lr=3e-4"},
//                    &places));
//   RETURN_IF_ERROR(config::CheckFiles(config, {.train_files = true}, places));
//
// Precedence: common/config/defaults.yaml, then the files in order, then the overrides. Sections
// merge key by key, lists replace one another.
#ifndef TANDEM_COMMON_CONFIG_LOAD_H_
#define TANDEM_COMMON_CONFIG_LOAD_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/place.h"
#include "common/config/validation.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::config {

// Every value is stated in what it returns, run_dir included. All errors are INVALID_ARGUMENT, as
// many as can be found in one go, a line each: "run.yaml:12: actor.optim.lrr: unknown key; did you
// mean 'lr'? (known: ...)". `places`, where given, receives where the values were stated; `support`
// says which choices are accepted.
absl::StatusOr<v1::RunConfig> LoadRunConfig(const std::vector<std::string>& files,
                                            const std::vector<std::string>& overrides,
                                            Places* places = nullptr,
                                            Support support = Support::kThisBuild);

// The defaults alone.
v1::RunConfig DefaultRunConfig();

}  // namespace tandem::config

#endif  // TANDEM_COMMON_CONFIG_LOAD_H_
