// The experts of a family's row.
#ifndef TANDEM_COMMON_MODEL_FAMILIES_ROW_EXPERTS_H_
#define TANDEM_COMMON_MODEL_FAMILIES_ROW_EXPERTS_H_

#include "absl/status/status.h"
#include "common/model/families/row_value.h"
#include "common/model/model_spec.h"
#include "tandem/model/v1/family.pb.h"

namespace tandem::model {

// Gives layers experts in place of their dense feed-forward. The layers are set.
absl::Status ParseExperts(const v1::FamilyRow& row, const RowValues& values, ModelSpec& spec);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_ROW_EXPERTS_H_
