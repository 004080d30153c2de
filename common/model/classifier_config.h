// ReplaceClassifier(): reads a classifier's config.json as its language model's.
#ifndef TANDEM_COMMON_MODEL_CLASSIFIER_CONFIG_H_
#define TANDEM_COMMON_MODEL_CLASSIFIER_CONFIG_H_

#include "absl/strings/string_view.h"
#include "nlohmann/json_fwd.hpp"

namespace tandem::model {

// Both have the same layers under the same names; only the head differs. If the first of the
// configuration's architectures ends with `suffix` ("ForSequenceClassification"), replaces it by that of
// the family's language model ("LlamaForCausalLM", "GPT2LMHeadModel") and returns true.
bool ReplaceClassifier(absl::string_view suffix, nlohmann::json& config);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_CLASSIFIER_CONFIG_H_
