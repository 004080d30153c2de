#include "common/images/chat/find_placeholders.h"

#include <optional>
#include <string>

namespace tandem::images {

absl::StatusOr<PlaceholderIds> FindPlaceholderIds(int32_t placeholder, PlaceholderTexts texts,
                                                  const tokenizer::Tokenizer* tokenizer) {
  // A model may give its placeholder by the id alone.
  if (tokenizer != nullptr && texts.placeholder.empty()) {
    const std::string* const text = tokenizer->IdToToken(placeholder);
    if (text != nullptr) texts.placeholder = *text;
  }
  return FindPlaceholderIds(
      placeholder, texts,
      [tokenizer](const std::string& token) -> std::optional<int32_t> {
        if (tokenizer == nullptr) return std::nullopt;
        return tokenizer->TokenToId(token);
      },
      [tokenizer](const std::string& text) {
        return tokenizer->Encode(text, /*add_special_tokens=*/false);
      });
}

}  // namespace tandem::images
