// What a row states for the chat template besides its messages.
#ifndef TANDEM_TOOLS_TANDEM_DATASET_CHAT_OPTIONS_H_
#define TANDEM_TOOLS_TANDEM_DATASET_CHAT_OPTIONS_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"

namespace tandem::dataset {

// Returns the tools at `tools_key`, which may be empty for none, and the template's variables:
// `variables` (data.chat_template_kwargs, a JSON object as text), overridden by the row's
// chat_template_kwargs. INVALID_ARGUMENT names the key.
absl::StatusOr<tokenizer::ChatOptions> ReadChatOptions(const nlohmann::ordered_json& row,
                                                       const std::string& tools_key,
                                                       const std::string& variables);

}  // namespace tandem::dataset

#endif  // TANDEM_TOOLS_TANDEM_DATASET_CHAT_OPTIONS_H_
