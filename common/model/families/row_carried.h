// Reads from config.json what layers have besides the residual stream (carried_tensors.h): keys and values
// that they share, and inputs of their own.
#ifndef TANDEM_COMMON_MODEL_FAMILIES_ROW_CARRIED_H_
#define TANDEM_COMMON_MODEL_FAMILIES_ROW_CARRIED_H_

#include "absl/status/status.h"
#include "common/model/families/row_value.h"
#include "common/model/model_spec.h"
#include "tandem/model/v1/family.pb.h"

namespace tandem::model {

// Windows and heads have been read. INVALID_ARGUMENT: no layer before those that share has keys and values of
// their kind. Folders may have the tensors that these layers do not need, as those of the Hub do.
absl::Status ParseSharedKv(const v1::FamilyRow& row, const RowValues& values, ModelSpec& spec);

absl::Status ParseLayerInputs(const v1::FamilyRow& row, const RowValues& values, ModelSpec& spec);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_ROW_CARRIED_H_
