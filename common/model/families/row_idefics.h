// Reads the vision tower of Idefics 3 and SmolVLM, and their projector.
#ifndef TANDEM_COMMON_MODEL_FAMILIES_ROW_IDEFICS_H_
#define TANDEM_COMMON_MODEL_FAMILIES_ROW_IDEFICS_H_

#include "absl/status/status.h"
#include "common/model/families/config_reader.h"
#include "common/model/model_spec.h"

namespace tandem::model {

// Completes the tower of `spec`, whose language model is complete, and says where its patches' matrix lies.
// `config`: the config.json, with the projector's "scale_factor"; `tower`: its "vision_config".
// INVALID_ARGUMENT names the key of a bad size. UNIMPLEMENTED: another activation, images that are no
// squares.
absl::Status ParseIdefics3(const ConfigReader& config, const ConfigReader& tower, ModelSpec& spec);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_ROW_IDEFICS_H_
