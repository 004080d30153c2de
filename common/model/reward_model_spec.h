// Reward models: folders of transformers' ...ForSequenceClassification with one label, whose logit at a
// sequence's last token is its reward.
//
//   ASSIGN_OR_RETURN(const io::ModelConfig config, io::ReadModelConfig(path));
//   if (IsRewardModel(config.json)) {
//     ASSIGN_OR_RETURN(ModelSpec spec, ParseRewardModelSpec(config.json, config.path));
//   }
#ifndef TANDEM_COMMON_MODEL_REWARD_MODEL_SPEC_H_
#define TANDEM_COMMON_MODEL_REWARD_MODEL_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/io/model_folder.h"
#include "common/model/model_spec.h"
#include "nlohmann/json_fwd.hpp"

namespace tandem::model {

// Whether the architecture is a reward model's: "LlamaForSequenceClassification".
bool IsRewardArchitecture(absl::string_view architecture);

// Whether a config.json names such an architecture.
bool IsRewardModel(const nlohmann::json& config);

// Reads the config.json of a reward model: the family's transformer with a value head that has no bias
// (score.weight [1, hidden]), under its own architecture's name. Errors are those of ParseModelSpec();
// UNIMPLEMENTED for several labels, and for a model with a vision tower.
absl::StatusOr<ModelSpec> ParseRewardModelSpec(nlohmann::json config, const std::string& place);

// FAILED_PRECONDITION if the folder has no score.weight, UNIMPLEMENTED if that has several labels: the
// config.json need not say so.
absl::Status CheckRewardHead(const io::ModelFolder& folder);

// Returns the number of leading tokens up to the one whose logit counts: as transformers has it, the
// last that is no padding. At least 1, if there are tokens.
int64_t NumClassifiedTokens(const std::vector<int32_t>& token_ids,
                            std::optional<int64_t> pad_token_id);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_REWARD_MODEL_SPEC_H_
