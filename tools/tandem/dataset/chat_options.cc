#include "tools/tandem/dataset/chat_options.h"

#include "common/status/status_macros.h"
#include "tools/tandem/dataset/chat_messages.h"
#include "tools/tandem/dataset/row_keys.h"

namespace tandem::dataset {

using nlohmann::ordered_json;

absl::StatusOr<tokenizer::ChatOptions> ReadChatOptions(const ordered_json& row,
                                                       const std::string& tools_key,
                                                       const std::string& variables) {
  tokenizer::ChatOptions options;
  if (!tools_key.empty()) {
    ASSIGN_OR_RETURN(options.tools, ReadTools(*FindKey(row, tools_key), tools_key));
  }
  ASSIGN_OR_RETURN(options.extra, ReadTemplateVariables(variables, "data.chat_template_kwargs"));
  const std::string key = "chat_template_kwargs";
  if (const auto own = row.find(key); own != row.end()) {
    ASSIGN_OR_RETURN(const ordered_json overrides, ReadTemplateVariables(*own, key));
    for (const auto& [name, value] : overrides.items()) options.extra[name] = value;
  }
  return options;
}

}  // namespace tandem::dataset
