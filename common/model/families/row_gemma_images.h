// What Gemma 3 with images has beside its language model.
#ifndef TANDEM_COMMON_MODEL_FAMILIES_ROW_GEMMA_IMAGES_H_
#define TANDEM_COMMON_MODEL_FAMILIES_ROW_GEMMA_IMAGES_H_

#include <string>

#include "absl/status/status.h"
#include "common/model/families/config_reader.h"
#include "common/model/model_spec.h"
#include "nlohmann/json.hpp"

namespace tandem::model {

// Sets keys of "text_config" that a config.json, as those on the Hub, leaves to the class.
// INVALID_ARGUMENT without such an object, UNIMPLEMENTED for another language model than Gemma 3's.
absl::Status AddGemmaText(const std::string& place, nlohmann::json& config);

// Completes the tower of `spec`, whose language model is complete, and says where its merger's matrix lies.
// INVALID_ARGUMENT names the key: a bad size, a side of patches that rows do not divide.
absl::Status ParseGemmaImages(const ConfigReader& config, const ConfigReader& tower,
                              ModelSpec& spec);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_ROW_GEMMA_IMAGES_H_
