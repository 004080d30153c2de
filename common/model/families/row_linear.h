// The layers of a family's row that have linear attention (layers/delta_spec.h).
#ifndef TANDEM_COMMON_MODEL_FAMILIES_ROW_LINEAR_H_
#define TANDEM_COMMON_MODEL_FAMILIES_ROW_LINEAR_H_

#include "absl/status/status.h"
#include "common/model/families/row_value.h"
#include "common/model/model_spec.h"
#include "tandem/model/v1/family.pb.h"

namespace tandem::model {

// Gives layers linear attention where config.json or the row says so; no effect without
// "linear_attention" in the row. The layers' attention, feed-forward and norms are set. Besides errors
// of RowValues: INVALID_ARGUMENT if no layer has full attention; UNIMPLEMENTED if the row combines it
// with latent attention, windows, a tower or another activation than SiLU.
absl::Status ParseLinearAttention(const v1::FamilyRow& row, const RowValues& values,
                                  ModelSpec& spec);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_ROW_LINEAR_H_
