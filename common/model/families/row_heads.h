// Reads the numbers of heads and their sizes from config.json, as a row of families.yaml says.
#ifndef TANDEM_COMMON_MODEL_FAMILIES_ROW_HEADS_H_
#define TANDEM_COMMON_MODEL_FAMILIES_ROW_HEADS_H_

#include "absl/status/status.h"
#include "common/model/families/row_value.h"
#include "common/model/model_spec.h"
#include "tandem/model/v1/family.pb.h"

namespace tandem::model {

// Those of all layers. Sets the sizes of `values` that follow that of the residual stream. Errors are
// those of ParseModelSpec().
absl::Status ParseHeads(const v1::FamilyRow& row, RowValues& values, AttentionSpec& spec);

// Gives `attention` the heads of `heads`, as ParseHeads() reads them.
void TakeHeads(const AttentionSpec& heads, AttentionSpec& attention);

// The row with what layers with a window have in place of its values.
v1::FamilyRow WindowedRow(const v1::FamilyRow& row);

// The heads that layers with a window have in their place (Windows), and the sinks and values of these layers.
absl::Status ParseWindowedHeads(const v1::FamilyRow& row, const RowValues& values, ModelSpec& spec);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_ROW_HEADS_H_
