// Tokens of tool calls and of GSM8K's notation for the tiny model, so that a random policy writes some.
#ifndef TANDEM_TESTS_SUPPORT_TOOL_CALL_TOKENS_H_
#define TANDEM_TESTS_SUPPORT_TOOL_CALL_TOKENS_H_

#include "nlohmann/json.hpp"
#include "tests/support/character_tokenizer.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

namespace tandem::testing {

// Adds them to `folder`/model, which WriteTinyModel() wrote. positions: the model's context.
inline void AddToolCallTokens(const TempFolder& folder, int positions = 64) {
  using nlohmann::json;
  json config = json::parse(ReadWhole(folder / "model/config.json"));
  json tokenizer = json::parse(ReadWhole(folder / "model/tokenizer.json"));
  int next = config["vocab_size"];
  for (const char* token : {"<<", ">>", "<tool_call>", "</tool_call>"}) {
    tokenizer["model"]["vocab"][token] = next;
    tokenizer["added_tokens"].push_back(AddedToken(next++, token, /*special=*/false));
  }
  config["vocab_size"] = next;
  config["max_position_embeddings"] = positions;
  folder.Write("model/config.json", config.dump());
  folder.Write("model/tokenizer.json", tokenizer.dump());
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_TOOL_CALL_TOKENS_H_
