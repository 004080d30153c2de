// tandem score and generate on rows with images, against transformers (tests/parity/vision_golden.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/io/read_file.h"
#include "tests/support/addition_data.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"
#include "tests/support/vision_chat_model.h"

namespace tandem {
namespace {

using nlohmann::json;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::RunProgram;
using ::testing::AllOf;
using ::testing::HasSubstr;

json PathsOf(const json& images) {
  json paths = json::array();
  for (const std::string name : images) paths.push_back("model/" + name);
  return paths;
}

class ImageRowsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = testing::WriteVisionChatModel(folder_);
    golden_ = json::parse(io::ReadFile(model_ + "/golden.json").value())["rows"];
  }

  // `command` on rows in a file beside the folder of the model, whose images they name.
  ProgramResult Run(std::vector<std::string> command, const std::vector<json>& rows) const {
    std::string text;
    for (const json& row : rows) text += row.dump() + "\n";
    command.insert(command.end(), {"--model", model_, "--input", folder_.Write("in.jsonl", text)});
    return RunProgram("tandem", command);
  }

  const testing::TempFolder folder_;
  std::string model_;
  json golden_;
};

TEST_F(ImageRowsTest, ScoresAreThoseOfTransformers) {
  std::vector<json> rows;
  for (const json& row : golden_) {
    rows.push_back({{"ids", row["ids"]}, {"images", PathsOf(row["images"])}});
  }
  const ProgramResult result = Run({"score", "--side", "rollout"}, rows);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<json> lines = testing::JsonLines(result.out);
  ASSERT_EQ(lines.size(), golden_.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto found = lines[i]["logprobs"].get<std::vector<double>>();
    const auto expected = golden_[i]["logprobs"].get<std::vector<double>>();
    ASSERT_EQ(found.size(), expected.size());
    for (size_t t = 0; t < found.size(); ++t) EXPECT_NEAR(found[t], expected[t], 1e-4) << i;
  }
}

class ScoredModelsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ScoredModelsTest, BothSidesScoreThemAsTransformersDoes) {
  const testing::TempFolder folder;
  const std::string model = testing::WriteVisionChatModel(folder, GetParam());
  const json golden = json::parse(io::ReadFile(model + "/golden.json").value())["rows"];
  std::string rows;
  for (const json& row : golden) {
    rows += json{{"ids", row["ids"]}, {"images", PathsOf(row["images"])}}.dump() + "\n";
  }
  const std::string input = folder.Write("in.jsonl", rows);
  for (const char* side : {"rollout", "trainer"}) {
    const ProgramResult result =
        RunProgram("tandem", {"score", "--side", side, "--model", model, "--input", input});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const std::vector<json> lines = testing::JsonLines(result.out);
    ASSERT_EQ(lines.size(), golden.size());
    for (size_t i = 0; i < lines.size(); ++i) {
      const auto found = lines[i]["logprobs"].get<std::vector<double>>();
      const auto expected = golden[i]["logprobs"].get<std::vector<double>>();
      ASSERT_EQ(found.size(), expected.size());
      for (size_t t = 0; t < found.size(); ++t) {
        EXPECT_NEAR(found[t], expected[t], 1e-4) << side << " " << i << " " << t;
      }
    }
  }
}

void AddText(const std::string& text, json& ids) {
  const std::string characters = testing::kVisionCharacters;
  for (const char c : text) ids.push_back(3 + characters.find(c));
}

// Generates from a chat, and from the ids and images that it expands to: the tokens are the same.
void ExpectChatIsPrompt(const testing::TempFolder& folder, const std::string& model,
                        const json& content, const json& ids, const json& images) {
  const json messages = {{{"role", "user"}, {"content", content}}};
  const std::string input =
      folder.Write("in.jsonl", json{{"messages", messages}}.dump() + "\n" +
                                   json{{"ids", ids}, {"images", images}}.dump() + "\n");

  const ProgramResult result =
      RunProgram("tandem", {"generate", "--max-tokens", "6", "--temperature", "0", "--ignore-eos",
                            "--model", model, "--input", input});

  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<json> lines = testing::JsonLines(result.out);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["ids"].size(), 6U);
  EXPECT_EQ(lines[0]["ids"], lines[1]["ids"]);
  EXPECT_EQ(lines[0]["logprobs"], lines[1]["logprobs"]);
}

// What the processor or the template puts around the placeholders of an image is among the ids.
class ChatModelsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ChatModelsTest, AChatIsThePromptOfItsExpandedIds) {
  const std::map<std::string, int> rows = {{"qwen2-vl", 24},        {"qwen3-vl-moe", 24},
                                           {"llava", 16},           {"internvl", 28},
                                           {"llava-onevision", 70}, {"gemma3", 4}};
  const testing::TempFolder folder;
  const std::string model = testing::WriteVisionChatModel(folder, GetParam());
  json ids = json::array();
  AddText("what is this?", ids);
  const int ends_of_line = GetParam() == "gemma3" ? 1 : 0;  // two ends are one <unk>
  for (int i = 0; i < ends_of_line; ++i) ids.push_back(40);
  ids.push_back(38);
  for (int i = 0; i < rows.at(GetParam()); ++i) ids.push_back(36);
  ids.push_back(39);
  for (int i = 0; i < ends_of_line; ++i) ids.push_back(40);
  AddText("=", ids);
  ExpectChatIsPrompt(folder, model,
                     {{{"type", "text"}, {"text", "what is this?"}},
                      {{"type", "image"}, {"image", "model/a.png"}}},
                     ids, json::array({"model/a.png"}));
}

INSTANTIATE_TEST_SUITE_P(Models, ChatModelsTest,
                         ::testing::Values("qwen2-vl", "qwen3-vl-moe", "llava", "internvl",
                                           "gemma3", "llava-onevision"),
                         [](const auto& info) { return testing::VisionGoldenName(info.param); });

INSTANTIATE_TEST_SUITE_P(Models, ScoredModelsTest,
                         ::testing::Values("qwen3-vl-moe", "mistral3", "mistral3-ministral",
                                           "llava", "internvl", "gemma3", "gemma3-long",
                                           "llava-onevision", "llava-onevision-shrunk", "idefics3",
                                           "smolvlm"),
                         [](const auto& info) { return testing::VisionGoldenName(info.param); });

// Text stands between the lines of Mistral 3's placeholders, and behind the last.
TEST(ImageLinesTest, AChatIsThePromptOfItsExpandedIds) {
  const testing::TempFolder folder;
  const std::string model = testing::WriteVisionChatModel(folder, "mistral3");
  json ids = json::array();
  const auto add_lines = [&](int rows, int columns) {
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < columns; ++i) ids.push_back(36);
      ids.push_back(row + 1 < rows ? 37 : 38);
    }
  };
  add_lines(5, 6);
  add_lines(2, 2);
  AddText("?=", ids);
  ExpectChatIsPrompt(folder, model,
                     {{{"type", "image"}, {"image", "model/a.png"}},
                      {{"type", "image"}, {"image", "model/c.png"}},
                      {{"type", "text"}, {"text", "?"}}},
                     ids, json::array({"model/a.png", "model/c.png"}));
}

// Idefics 3's tiles have their names between them.
TEST(NamedTilesTest, AChatIsThePromptOfItsExpandedIds) {
  const testing::TempFolder folder;
  const std::string model = testing::WriteVisionChatModel(folder, "idefics3");
  json ids = json::array();
  const auto add_tile = [&](int name) {
    for (const int id : {38, name, 36, 36, 36, 36}) ids.push_back(id);
  };
  const auto add_whole = [&] {
    add_tile(39);
    ids.push_back(38);
  };
  AddText("ab", ids);
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 3; ++column) add_tile(43 + 3 * row + column);
    ids.push_back(row < 2 ? 41 : 42);
  }
  add_whole();
  for (int row = 0; row < 3; ++row) {
    add_tile(43 + 3 * row);
    ids.push_back(row < 2 ? 41 : 42);
  }
  add_whole();
  AddText("?=", ids);
  ExpectChatIsPrompt(folder, model,
                     {{{"type", "text"}, {"text", "ab"}},
                      {{"type", "image"}, {"image", "model/a.png"}},
                      {{"type", "image"}, {"image", "model/c.png"}},
                      {{"type", "text"}, {"text", "?"}}},
                     ids, json::array({"model/a.png", "model/c.png"}));
}

TEST_F(ImageRowsTest, AnErrorNamesTheRowAndTheImage) {
  const json& row = golden_[0];
  const json good = {{"ids", row["ids"]}, {"images", PathsOf(row["images"])}};
  const ProgramResult missing =
      Run({"score", "--side", "rollout"}, {good, {{"ids", row["ids"]}, {"images", {"no.png"}}}});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("in.jsonl:2: images[0]"));
  folder_.Write("cut.png", io::ReadFile(model_ + "/a.png").value().substr(0, 120));
  const ProgramResult cut =
      Run({"score", "--side", "rollout"}, {good, {{"ids", row["ids"]}, {"images", {"cut.png"}}}});
  EXPECT_EQ(cut.exit_code, 1);
  EXPECT_THAT(cut.err, AllOf(HasSubstr("images[0]: PNG"), HasSubstr("sequence 2 of the input")));
  EXPECT_EQ(testing::JsonLines(cut.out).size(), 0U);  // of the batch that fails
}

// Every command whose rows have images: refused without the flag, and with it fetched from public
// addresses alone.
TEST_F(ImageRowsTest, UrlsAreFetchedOnlyWhenAskedFor) {
  const char* const url = "http://127.0.0.1:1/a.png";
  const json ids = {{"ids", golden_[0]["ids"]}, {"images", {url}}};
  const json content = {{{"type", "image_url"}, {"image_url", {{"url", url}}}}};
  const json chat = {{"messages", {{{"role", "user"}, {"content", content}}}}};
  const std::vector<std::pair<std::vector<std::string>, json>> commands = {
      {{"score", "--side", "rollout"}, ids},
      {{"generate", "--max-tokens", "2"}, ids},
      {{"generate", "--max-tokens", "2"}, chat},
      {{"tokenize", "--chat"}, chat}};
  for (auto [command, row] : commands) {
    const ProgramResult refused = Run(command, {row});
    EXPECT_EQ(refused.exit_code, 1) << command[0];
    EXPECT_THAT(refused.err, AllOf(HasSubstr("in.jsonl:1"), HasSubstr("--allow-image-urls")));
    command.push_back("--allow-image-urls");
    const ProgramResult fetched = Run(command, {row});
    EXPECT_EQ(fetched.exit_code, 1) << command[0];
    EXPECT_THAT(fetched.err,
                AllOf(HasSubstr("in.jsonl:1"),
                      HasSubstr("http://127.0.0.1:1/a.png: expected an address of the public")));
  }
}

}  // namespace
}  // namespace tandem
