// Reads the heads that single layers have in place of the model's from config.json, as transformers 5 writes
// them ("per_layer_config").
#ifndef TANDEM_COMMON_MODEL_FAMILIES_ROW_OVERRIDES_H_
#define TANDEM_COMMON_MODEL_FAMILIES_ROW_OVERRIDES_H_

#include "absl/status/status.h"
#include "common/model/families/row_value.h"
#include "common/model/model_spec.h"
#include "tandem/model/v1/family.pb.h"

namespace tandem::model {

// Does nothing for a file without FamilyRow::layer_overrides. INVALID_ARGUMENT: a number that is none of a
// layer, and what ParseHeads() says of a layer; UNIMPLEMENTED: a key that differs and is none of heads.
absl::Status ParseLayerOverrides(const v1::FamilyRow& row, const RowValues& values,
                                 ModelSpec& spec);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_ROW_OVERRIDES_H_
