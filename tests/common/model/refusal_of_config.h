// Why a config.json is refused.
#ifndef TANDEM_TESTS_COMMON_MODEL_REFUSAL_OF_CONFIG_H_
#define TANDEM_TESTS_COMMON_MODEL_REFUSAL_OF_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/model/model_spec.h"
#include "nlohmann/json.hpp"

namespace tandem::model {

// The message; empty if the configuration is taken.
inline std::string RefusalOf(const nlohmann::json& config) {
  const absl::StatusOr<ModelSpec> spec = ParseModelSpec(config, "config.json");
  return spec.ok() ? "" : std::string(spec.status().message());
}

}  // namespace tandem::model

#endif  // TANDEM_TESTS_COMMON_MODEL_REFUSAL_OF_CONFIG_H_
