// The language model of a family that takes any of several: LLaVA, LLaVA-OneVision, InternVL and Idefics 3 name
// it in "text_config".
#ifndef TANDEM_COMMON_MODEL_FAMILIES_ROW_TEXT_H_
#define TANDEM_COMMON_MODEL_FAMILIES_ROW_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tandem/model/v1/family.pb.h"

namespace tandem::model {

// Returns the row of the language model that "text_config" names, with the tower and the tensors of
// `row`, whose tower sees tiles; sets keys of `config`, the config.json, that "text_config" leaves to
// its class. For Gemma 3, whose row is that of its language model, `row` itself. UNIMPLEMENTED, with those
// there are, for another language model.
absl::StatusOr<v1::FamilyRow> WithTextRow(const v1::FamilyRow& row, const std::string& place,
                                          nlohmann::json& config);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_ROW_TEXT_H_
