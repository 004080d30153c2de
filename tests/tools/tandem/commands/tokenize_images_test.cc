// tandem tokenize --chat with images, against transformers' Qwen2VLProcessor and Gemma3Processor
// (tests/parity/image_golden.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/addition_data.h"
#include "tests/support/character_tokenizer.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_data.h"
#include "tests/support/vision_golden.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::testing::HasSubstr;

constexpr char kTokenizer[] = "tokenizers/qwen2.5";

fs::path Golden() {
  const char* source = std::getenv("TANDEM_SOURCE");
  return fs::path(source != nullptr ? source : ".") / "tests/common/images/golden";
}

std::string ReadText(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// A model folder with tokenizer, template and image processor, and the images beside the inputs.
class ImageChat {
 public:
  ImageChat() {
    fs::copy(testing::TestData(kTokenizer), folder_ / "model", fs::copy_options::recursive);
    folder_.Write("model/chat_template.jinja", ReadText(Golden() / "chat_template.jinja"));
    folder_.Write("model/preprocessor_config.json",
                  R"({"image_processor_type": "Qwen2VLImageProcessor",
        "size": {"shortest_edge": 3136, "longest_edge": 15680}})");
    fs::copy(Golden() / "files", folder_ / "files", fs::copy_options::recursive);
  }

  ProgramResult Tokenize(const std::string& rows) const {
    const std::string input = folder_.Write("in.jsonl", rows);
    return RunProgram("tandem",
                      {"tokenize", "--chat", "--model", folder_ / "model", "--input", input});
  }
  const TempFolder& folder() const { return folder_; }

  // The ids of all rows are those that transformers made of them.
  void ExpectGolden(const char* name) const {
    const std::string rows = ReadText(Golden() / name);
    const ProgramResult result = Tokenize(rows);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const std::vector<json> found = testing::JsonLines(result.out);
    const std::vector<json> expected = testing::JsonLines(rows);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i]["ids"], expected[i]["ids"]) << i;
  }

 private:
  TempFolder folder_;
};

TEST(TokenizeImages, IdsEqualTransformers) {
  SKIP_WITHOUT_DATA(kTokenizer);
  const ImageChat chat;
  chat.ExpectGolden("chats.jsonl");
}

// Gemma 3's processor puts ends of line around an image before anything becomes tokens: they join those of
// the chat.
TEST(TokenizeImages, IdsOfGemmaEqualTransformers) {
  SKIP_WITHOUT_DATA(kTokenizer);
  const ImageChat chat;
  json tokenizer = json::parse(ReadText(chat.folder() / "model/tokenizer.json"));
  int id = 151665;
  for (const char* token : {"<start_of_image>", "<image_soft_token>", "<end_of_image>"}) {
    tokenizer["added_tokens"].push_back(testing::AddedToken(id++, token, /*special=*/true));
  }
  chat.folder().Write("model/tokenizer.json", tokenizer.dump());
  const fs::path model = testing::VisionGolden("gemma3");
  json config = json::parse(ReadText(model / "config.json"));
  config["image_token_index"] = 151666;
  config["text_config"]["vocab_size"] = id;
  chat.folder().Write("model/config.json", config.dump());
  chat.folder().Write("model/preprocessor_config.json",
                      ReadText(model / "preprocessor_config.json"));
  std::string text = ReadText(Golden() / "chat_template.jinja");
  const std::string image = "<|vision_start|><|image_pad|><|vision_end|>";
  text.replace(text.find(image), image.size(), "<start_of_image>");
  chat.folder().Write("model/chat_template.jinja", text);

  chat.ExpectGolden("gemma_chats.jsonl");
}

// Idefics 3's tiles have names that are tokens, or text.
TEST(TokenizeImages, IdsOfTilesEqualTransformers) {
  for (const json& row : testing::JsonLines(ReadText(Golden() / "tile_chats.jsonl"))) {
    const std::string name = row["tokenizer"];
    SKIP_WITHOUT_DATA(name.c_str());
    SCOPED_TRACE(row["messages"].dump() + row["preprocessor"].dump());
    const TempFolder folder;
    fs::copy(testing::TestData(name.c_str()), folder / "model", fs::copy_options::recursive);
    fs::copy(Golden() / "files", folder / "files", fs::copy_options::recursive);
    json tokenizer = json::parse(ReadText(folder / "model/tokenizer.json"));
    int64_t placeholder = -1;
    for (const json& token : row["added_tokens"]) {
      tokenizer["added_tokens"].push_back(token);
      if (token["content"] == "<image>") placeholder = token["id"];
    }
    folder.Write("model/tokenizer.json", tokenizer.dump());
    folder.Write("model/chat_template.jinja", row["chat_template"].get<std::string>());
    folder.Write("model/preprocessor_config.json", row["preprocessor"].dump());
    folder.Write("model/processor_config.json",
                 json{{"image_seq_len", row["image_seq_len"]}}.dump());
    json config = json::parse(ReadText(Golden().parent_path().parent_path() /
                                       "model/vision_golden/idefics3/config.json"));
    config["image_token_id"] = placeholder;
    config["text_config"]["vocab_size"] = placeholder + 100;
    folder.Write("model/config.json", config.dump());
    const std::string input = folder.Write("in.jsonl", row.dump() + "\n");

    const ProgramResult result =
        RunProgram("tandem", {"tokenize", "--chat", "--model", folder / "model", "--input", input});

    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(testing::JsonLines(result.out).at(0)["ids"], row["ids"]);
  }
}

TEST(TokenizeImages, AnErrorNamesRowAndPart) {
  SKIP_WITHOUT_DATA(kTokenizer);
  const ImageChat chat;
  const std::string whole = ReadText(Golden() / "files/png_2_8.png");
  chat.folder().Write("cut.png", whole.substr(0, 100));
  const std::string good =
      R"({"messages": [{"role": "user", "content": [{"type": "image", "image": "files/jpeg_l.jpg"}]}]})";
  const auto with_part = [](const std::string& part, const std::string& rest = "") {
    return R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, )" + part +
           "]}]" + rest + "}";
  };
  const struct {
    std::string row;
    const char* message;
  } cases[] = {
      {with_part(R"({"type": "image", "image": "cut.png"})"),
       "cut.png: PNG: chunk IDAT at byte 33"},
      {with_part(R"({"type": "image"})"), "messages[0].content[1]: an image without a source"},
      {with_part(R"({"type": "text", "text": "b"})", R"(, "images": ["files/jpeg_l.jpg"])"),
       "images[0]: has no part in messages"},
  };
  for (const auto& row : cases) {
    const ProgramResult result = chat.Tokenize(good + "\n" + row.row + "\n");
    EXPECT_EQ(result.exit_code, 1) << row.row;
    EXPECT_THAT(result.err, HasSubstr("in.jsonl:2: "));
    EXPECT_THAT(result.err, HasSubstr(row.message));
    EXPECT_EQ(testing::JsonLines(result.out).size(), 1u);  // the row before is answered
  }
}

TEST(TokenizeImages, AFolderWithoutAnImageProcessorDoesForText) {
  SKIP_WITHOUT_DATA(kTokenizer);
  const ImageChat chat;
  fs::remove(chat.folder() / "model/preprocessor_config.json");
  const ProgramResult text =
      chat.Tokenize(R"({"messages": [{"role": "user", "content": "<|image_pad|>"}]})");
  EXPECT_EQ(text.exit_code, 0) << text.err;
  const ProgramResult image = chat.Tokenize(
      R"({"messages": [{"role": "user", "content": [{"type": "image", "image": "a.png"}]}]})");
  EXPECT_EQ(image.exit_code, 1);
  EXPECT_THAT(image.err, HasSubstr("messages[0].content[0]: "));
  EXPECT_THAT(image.err, HasSubstr("no preprocessor_config.json"));
}

}  // namespace
}  // namespace tandem
