// Reads the files beside tokenizer.json: tokenizer_config.json, special_tokens_map.json,
// chat_template.jinja.
#ifndef TANDEM_COMMON_TOKENIZER_TOKENIZER_CONFIG_H_
#define TANDEM_COMMON_TOKENIZER_TOKENIZER_CONFIG_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace tandem::tokenizer {

struct TokenizerConfig {
  // "eos_token" -> "<|im_end|>": the named special tokens that are set.
  std::map<std::string, std::string> special_tokens;
  // Chat templates by name; "default" is the usual one.
  std::map<std::string, std::string> chat_templates;
  // The origin of each template, for messages.
  std::map<std::string, std::string> template_places;
};

// Reads those of the files that `folder` has. All are optional; InvalidArgument names the malformed
// file and key. chat_template.jinja overrides the template of tokenizer_config.json, as in
// transformers.
absl::StatusOr<TokenizerConfig> ReadTokenizerConfig(const std::string& folder);

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_TOKENIZER_CONFIG_H_
