// Files that are wrong, by accident or on purpose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "common/tokenizer/tokenizer.h"
#include "tests/common/tokenizer/tokenizer_fixture.h"
#include "tests/support/status_matchers.h"

namespace tandem::tokenizer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

void ExpectError(const std::string& json, absl::StatusCode code, const std::string& text) {
  SCOPED_TRACE(json);
  EXPECT_THAT(LoadJson(json),
              testing::StatusIs(code, AllOf(HasSubstr("tokenizer.json"), HasSubstr(text))));
}

TEST(TokenizerErrors, SaysWhichFileIsAbsent) {
  EXPECT_THAT(
      Tokenizer::Load("/no/such/folder"),
      testing::StatusIs(absl::StatusCode::kNotFound, HasSubstr("/no/such/folder/tokenizer.json")));
}

TEST(TokenizerErrors, NamesTheKey) {
  ExpectError("{", kInvalid, "not valid JSON");
  ExpectError("[]", kInvalid, "expected an object");
  ExpectError("{}", kInvalid, "'model' is missing");
  ExpectError(R"({"model": 3})", kInvalid, "model: expected an object, found a number");
  ExpectError(R"({"model": {"type": "WordLevel"}})", kInvalid, "model: 'vocab' is missing");
  ExpectError(R"({"model": {"type": "WordLevel", "vocab": []}})", kInvalid, "model.vocab");
  ExpectError(WordLevelJson("{}", R"(, "normalizer": {"type": 1})"), kInvalid, "normalizer.type");
  ExpectError(
      WordLevelJson("{}",
                    R"(, "decoder": {"type": "Strip", "content": "ab", "start": 0, "stop": 0})"),
      kInvalid, "decoder.content");
  ExpectError(
      WordLevelJson("{}",
                    R"(, "decoder": {"type": "Strip", "content": "a", "start": -1, "stop": 0})"),
      kInvalid, "decoder.start");
  ExpectError(
      WordLevelJson(R"({"<unk>": 0, "x": 2147483647})",
                    R"(, "added_tokens": [{"id": 1, "content": "x"}, {"id": 2, "content": "y"}])"),
      kInvalid, "added_tokens[1]: no id is left for the token 'y'");
  ExpectError(WordLevelJson("{}", R"(, "added_tokens": [{"id": 0}])"), kInvalid,
              "added_tokens[0]: 'content'");
  ExpectError(
      WordLevelJson(
          "{}",
          R"(, "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"})"),
      kInvalid, "pre_tokenizer.pattern.Regex");
  ExpectError(
      WordLevelJson(
          "{}",
          R"(, "pre_tokenizer": {"type": "Split", "pattern": {"String": "a"}, "behavior": "Odd"})"),
      kInvalid, "pre_tokenizer.behavior");
  ExpectError(
      WordLevelJson(
          "{}",
          R"(, "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}], "special_tokens": {}})"),
      kInvalid, "post_processor.single[0].SpecialToken.id");
}

TEST(TokenizerErrors, NamesATypeThatIsNotSupported) {
  constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;
  ExpectError(R"({"model": {"type": "Lattice"}})", kUnimplemented,
              "model: a model of type 'Lattice'");
  ExpectError(WordLevelJson("{}", R"(, "normalizer": {"type": "Custom"})"), kUnimplemented,
              "normalizer: a normalizer of type 'Custom'");
  ExpectError(WordLevelJson("{}", R"(, "decoder": {"type": "CTC"})"), kUnimplemented,
              "decoder: a decoder of type 'CTC'");
  ExpectError(WordLevelJson("{}", R"(, "pre_tokenizer": {"type": "UnicodeScripts"})"),
              kUnimplemented, "pre_tokenizer: a pre-tokenizer of type 'UnicodeScripts'");
  ExpectError(WordLevelJson("{}", R"(, "post_processor": {"type": "Custom"})"), kUnimplemented,
              "post_processor: a post-processor of type 'Custom'");
}

TEST(TokenizerErrors, NamesTheFieldOfABertTokenizerThatIsWrong) {
  ExpectError(WordLevelJson("{}", R"(, "normalizer": {"type": "BertNormalizer", "lowercase": 1})"),
              kInvalid, "normalizer.lowercase");
  ExpectError(WordLevelJson(
                  "{}", R"(, "normalizer": {"type": "Precompiled", "precompiled_charsmap": "%"})"),
              kInvalid, "normalizer.precompiled_charsmap: expected base64");
  ExpectError(
      WordLevelJson("{}", R"(, "normalizer": {"type": "Precompiled", "precompiled_charsmap": ""})"),
      kInvalid, "precompiled_charsmap is damaged");
  ExpectError(WordLevelJson(
                  "{}", R"(, "pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": "ab"})"),
              kInvalid, "pre_tokenizer.delimiter: expected one character");
  ExpectError(WordLevelJson("{}", R"(, "pre_tokenizer": {"type": "FixedLength", "length": 0})"),
              kInvalid, "pre_tokenizer.length");
  ExpectError(
      WordLevelJson(
          "{}", R"(, "post_processor": {"type": "BertProcessing", "cls": ["a", 1], "sep": ["b"]})"),
      kInvalid, "post_processor.sep: expected [\"token\", id]");
  ExpectError(WordLevelJson("{}", R"(, "decoder": {"type": "BPEDecoder", "suffix": ""})"), kInvalid,
              "decoder: suffix is empty");
}

TEST(TokenizerErrors, SaysHowToConvertAnotherTokenizer) {
  const std::string sentence_piece = "transformers sentencepiece protobuf";
  const std::map<std::string, std::string> packages = {
      {"tokenizer.model", sentence_piece},
      {"spiece.model", sentence_piece},
      {"tekken.json", "transformers mistral-common"},
      {"vocab.txt", "transformers"}};
  for (const auto& [name, needed] : packages) {
    const ModelFolder folder;
    folder.Write(name, "");
    const std::string option = name == "tekken.json" ? ", save_format='hf'" : "";
    EXPECT_THAT(
        Tokenizer::Load(folder.path()),
        testing::StatusIs(
            absl::StatusCode::kNotFound,
            AllOf(HasSubstr("tokenizer.json: no such file"),
                  HasSubstr("found " + name + ", which is not read; convert it: pip install -U " +
                            needed + " && python -c \"from transformers import AutoTokenizer"),
                  HasSubstr("from_pretrained('" + folder.path() + "').save_pretrained('" +
                            folder.path() + "'" + option + ")\""))));
  }
}

// Mistral's newer folders have both; tekken.json is the one that transformers prefers.
TEST(TokenizerErrors, ConvertsTekkenBeforeTokenizerModel) {
  const ModelFolder folder;
  folder.Write("tokenizer.model", "");
  folder.Write("tekken.json", "");
  EXPECT_THAT(Tokenizer::Load(folder.path()),
              testing::StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr("found tekken.json"),
                                                                   HasSubstr("mistral-common"))));
}

TEST(TokenizerErrors, RefusesIdsThatAreNoIds) {
  for (const char* id :
       {"-1", "2147483648", "18446744073709551615", "1.5", "\"1\"", "null", "[]"}) {
    ExpectError(WordLevelJson(std::string(R"({"token": )") + id + "}"), kInvalid, "'token'");
  }
  ExpectError(WordLevelJson(R"({"one": 1, "two": 1})"), kInvalid, "share the id 1");
  EXPECT_OK(LoadJson(WordLevelJson(R"({"far": 2147483647})")).status());
}

TEST(TokenizerErrors, RefusesDeepNesting) {
  const auto nested = [](int levels) {
    std::string normalizer = R"({"type": "NFC"})";
    for (int i = 0; i < levels; ++i)
      normalizer = R"({"type": "Sequence", "normalizers": [)" + normalizer + "]}";
    return WordLevelJson("{}", ", \"normalizer\": " + normalizer);
  };
  ExpectError(nested(100), kInvalid, "nest too deeply");
  ExpectError(nested(5000), kInvalid, "at most 256 levels");  // of JSON, whatever they mean
}

TEST(TokenizerErrors, NamesTheConfigurationFileThatIsWrong) {
  const ModelFolder folder;
  folder.Write("tokenizer.json", WordLevelJson("{}"));
  folder.Write("tokenizer_config.json", R"({"eos_token": 7})");
  EXPECT_THAT(Tokenizer::Load(folder.path()),
              testing::StatusIs(kInvalid,
                                HasSubstr("tokenizer_config.json: eos_token: expected a string")));
}

// Any value of a good file replaced by any other: an error or a tokenizer, never a crash.
void LoadMutations(const nlohmann::json& good) {
  const std::vector<nlohmann::json> values = {nullptr,
                                              true,
                                              -1,
                                              1e300,
                                              4294967296,
                                              "",
                                              "a",
                                              "\xF0\x9F\x98\x80",
                                              "ByteLevel",
                                              "Sequence",
                                              nlohmann::json::array(),
                                              nlohmann::json::object(),
                                              nlohmann::json::array({1, "a"}),
                                              good};
  const nlohmann::json flat = good.flatten();
  std::mt19937 random(1);
  for (const auto& [pointer, unused] : flat.items()) {
    // The value at the pointer and each of its parents.
    for (nlohmann::json::json_pointer at(pointer); !at.empty(); at = at.parent_pointer()) {
      nlohmann::json bad = good;
      bad[at] = values[random() % values.size()];
      const auto tokenizer = LoadJson(bad.dump());
      if (!tokenizer.ok()) continue;
      const auto ids = (*tokenizer)->Encode("abc ab <s> x", true);
      if (ids.ok()) (void)(*tokenizer)->Decode(*ids, false);
    }
  }
}

TEST(TokenizerErrors, SurvivesMutatedFiles) {
  LoadMutations(nlohmann::json::parse(R"({
    "added_tokens": [{"id": 3, "content": "<s>", "lstrip": true, "normalized": true, "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "_"},
      {"type": "Replace", "pattern": {"Regex": " +"}, "content": "_"}, {"type": "Strip"}]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "[a-c]+"}, "behavior": "Isolated", "invert": false},
      {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}, {"type": "ByteLevel"}]},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}},
      {"Sequence": {"id": "A"}}], "special_tokens": {"<s>": {"ids": [3]}}},
    "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 1}, {"type": "ByteLevel"}]},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"], "unk_token": "a"}})"));
  LoadMutations(nlohmann::json::parse(R"({
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "BertNormalizer", "clean_text": true, "strip_accents": null, "lowercase": true},
      {"type": "StripAccents"}, {"type": "Nmt"}]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "BertPreTokenizer"},
      {"type": "CharDelimiterSplit", "delimiter": "-"}, {"type": "FixedLength", "length": 3}]},
    "post_processor": {"type": "BertProcessing", "sep": ["b", 1], "cls": ["a", 0]},
    "decoder": {"type": "Sequence", "decoders": [{"type": "BPEDecoder", "suffix": "b"},
      {"type": "WordPiece", "prefix": "##", "cleanup": true}]},
    "model": {"type": "WordPiece", "vocab": {"a": 0, "##b": 1, "[UNK]": 2},
      "continuing_subword_prefix": "##", "max_input_chars_per_word": 4, "unk_token": "[UNK]"}})"));
  LoadMutations(nlohmann::json::parse(R"({
    "model": {"type": "Unigram", "vocab": [["a", -1], ["ab", -1.5], ["<0x78>", 0]], "unk_id": 0,
      "byte_fallback": true}})"));
}

}  // namespace
}  // namespace tandem::tokenizer
