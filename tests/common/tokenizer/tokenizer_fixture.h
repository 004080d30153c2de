// Small tokenizers written out for a test.
#ifndef TANDEM_TESTS_COMMON_TOKENIZER_TOKENIZER_FIXTURE_H_
#define TANDEM_TESTS_COMMON_TOKENIZER_TOKENIZER_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/support/temp_folder.h"

namespace tandem::tokenizer {

using ModelFolder = testing::TempFolder;

// Loads a tokenizer.json given as text.
inline absl::StatusOr<std::unique_ptr<Tokenizer>> LoadJson(const std::string& tokenizer_json) {
  const ModelFolder folder;
  folder.Write("tokenizer.json", tokenizer_json);
  return Tokenizer::Load(folder.path());
}

// A tokenizer.json whose model knows the words of `vocab` (a JSON object), with the other members
// as `rest` has them (", \"decoder\": ...").
inline std::string WordLevelJson(const std::string& vocab, const std::string& rest = "") {
  return R"({"model": {"type": "WordLevel", "unk_token": "<unk>", "vocab": )" + vocab + "}" + rest +
         "}";
}

}  // namespace tandem::tokenizer

#endif  // TANDEM_TESTS_COMMON_TOKENIZER_TOKENIZER_FIXTURE_H_
