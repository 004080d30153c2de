// What lies beside tokenizer.json: tokenizer_config.json, special_tokens_map.json,
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
  // Chat templates by name; the usual one is "default".
  std::map<std::string, std::string> chat_templates;
  // Where a template came from, for messages.
  std::map<std::string, std::string> template_places;
};

// Reads what `folder` has of these files. None has to exist; InvalidArgument names the file and key
// that is malformed. chat_template.jinja goes before the template of tokenizer_config.json, as in
// transformers.
absl::StatusOr<TokenizerConfig> ReadTokenizerConfig(const std::string& folder);

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_TOKENIZER_CONFIG_H_
