#include "services/rollout/openai/token_text.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tandem::rollout::openai {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";  // U+FFFD
constexpr char kMetaspace[] = "\xE2\x96\x81";    // how SentencePiece writes a space

}  // namespace

std::string TokenText(const tokenizer::Tokenizer* tokenizer, int32_t id) {
  const std::string* const token = tokenizer == nullptr ? nullptr : tokenizer->IdToToken(id);
  if (token == nullptr) return absl::StrCat("token_id:", id);
  const auto text = tokenizer->Decode({id}, /*skip_special_tokens=*/false);
  if (!text.ok() || text->empty() || absl::StrContains(*text, kReplacement)) return *token;
  // The first token of a text loses its space.
  if (absl::StartsWith(*token, kMetaspace) && !absl::StartsWith(*text, " ")) return " " + *text;
  return *text;
}

int64_t CountCharacters(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace tandem::rollout::openai
