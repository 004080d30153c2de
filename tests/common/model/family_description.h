// What tests of the families read from a config.json, and say of it in a line.
#ifndef TANDEM_TESTS_COMMON_MODEL_FAMILY_DESCRIPTION_H_
#define TANDEM_TESTS_COMMON_MODEL_FAMILY_DESCRIPTION_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/model/model_spec.h"
#include "nlohmann/json.hpp"

namespace tandem::model {

// Reads it by the row of its first architecture; NOT_FOUND where there is none.
absl::StatusOr<ModelSpec> ParseFamily(const nlohmann::json& config);

// What sets the model apart from a plain Llama.
std::string Describe(const ModelSpec& spec);
std::string DescribeRope(const RopeSpec& rope);

}  // namespace tandem::model

#endif  // TANDEM_TESTS_COMMON_MODEL_FAMILY_DESCRIPTION_H_
