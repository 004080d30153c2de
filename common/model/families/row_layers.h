// What differs between the layers of a family's row: windows and rotations.
#ifndef TANDEM_COMMON_MODEL_FAMILIES_ROW_LAYERS_H_
#define TANDEM_COMMON_MODEL_FAMILIES_ROW_LAYERS_H_

#include "absl/status/status.h"
#include "common/model/families/row_value.h"
#include "common/model/model_spec.h"
#include "tandem/model/v1/family.pb.h"

namespace tandem::model {

// Sets the windows of all layers.
absl::Status ParseWindows(const v1::FamilyRow& row, const RowValues& values, ModelSpec& spec);

// Sets spec.ropes, and what the layers have of them. The windows are set.
absl::Status ParseRopes(const v1::FamilyRow& row, const RowValues& values, ModelSpec& spec);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_ROW_LAYERS_H_
