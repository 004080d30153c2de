// Reads a config.json as a row of families.yaml says.
#ifndef TANDEM_COMMON_MODEL_FAMILIES_ROW_CONFIG_H_
#define TANDEM_COMMON_MODEL_FAMILIES_ROW_CONFIG_H_

#include "absl/status/statusor.h"
#include "common/model/families/config_reader.h"
#include "common/model/model_spec.h"
#include "tandem/model/v1/family.pb.h"

namespace tandem::model {

// `row` is complete (FamilyTable). Errors are those of ParseModelSpec().
absl::StatusOr<ModelSpec> ParseRow(const v1::FamilyRow& row, const ConfigReader& config);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_ROW_CONFIG_H_
