// Reads a vision tower from the "vision_config" of a config.json as a family's row says.
#ifndef TANDEM_COMMON_MODEL_FAMILIES_ROW_VISION_H_
#define TANDEM_COMMON_MODEL_FAMILIES_ROW_VISION_H_

#include "absl/status/status.h"
#include "common/model/families/config_reader.h"
#include "common/model/model_spec.h"
#include "nlohmann/json.hpp"
#include "tandem/model/v1/family.pb.h"

namespace tandem::model {

// Returns the config.json of a model whose row has a tower with the language model's keys on top: those
// of "text_config", where it has one, in place of its own.
nlohmann::json WithTextConfig(const v1::FamilyRow& row, const nlohmann::json& config);

// Sets the tower of `spec`, whose language model is complete, and the sections of its ropes; nothing
// for a row without a tower. INVALID_ARGUMENT names the key: a bad size, a tower whose rows are not as
// wide as the embedding, sections that do not cover a head, deepstack behind layers that do not exist.
// UNIMPLEMENTED: another activation, images of other than three colors, a rope that depends on the
// length of the sequence.
absl::Status ParseVision(const v1::FamilyRow& row, const ConfigReader& config, ModelSpec& spec);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_ROW_VISION_H_
