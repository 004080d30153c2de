// Reads Pixtral's vision tower, and the projector of Mistral 3.
#ifndef TANDEM_COMMON_MODEL_FAMILIES_ROW_PIXTRAL_H_
#define TANDEM_COMMON_MODEL_FAMILIES_ROW_PIXTRAL_H_

#include "absl/status/status.h"
#include "common/model/families/config_reader.h"
#include "common/model/model_spec.h"

namespace tandem::model {

// Sets the tower of `spec`, whose language model is complete, and where its patches' matrix lies.
// `config`: the config.json, with the keys of the projector; `tower`: its "vision_config".
// INVALID_ARGUMENT names the key of a bad size. UNIMPLEMENTED: another class of tower, rows made of
// another layer than the last, another activation.
absl::Status ParsePixtral(const ConfigReader& config, const ConfigReader& tower, ModelSpec& spec);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_ROW_PIXTRAL_H_
