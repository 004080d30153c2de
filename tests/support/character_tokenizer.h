// A tokenizer.json that cuts text at added tokens and otherwise into characters.
#ifndef TANDEM_TESTS_SUPPORT_CHARACTER_TOKENIZER_H_
#define TANDEM_TESTS_SUPPORT_CHARACTER_TOKENIZER_H_

#include <string>

#include "nlohmann/json.hpp"

namespace tandem::testing {

inline nlohmann::json AddedToken(int id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// `vocabulary`: ids by text, with an <unk> for all other characters. `added`: AddedToken objects.
inline nlohmann::json CharacterTokenizer(const nlohmann::json& vocabulary,
                                         const nlohmann::json& added) {
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer",
           {{"type", "Split"},
            {"pattern", {{"Regex", "."}}},
            {"behavior", "Isolated"},
            {"invert", false}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "Fuse"}}},
          {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "<unk>"}}}};
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_CHARACTER_TOKENIZER_H_
