// tandem tokenize --chat with images, against transformers' Qwen2VLProcessor (tests/parity/image_golden.py).
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
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_data.h"

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

 private:
  TempFolder folder_;
};

TEST(TokenizeImages, IdsEqualTransformers) {
  SKIP_WITHOUT_DATA(kTokenizer);
  const ImageChat chat;
  const std::string rows = ReadText(Golden() / "chats.jsonl");

  const ProgramResult result = chat.Tokenize(rows);

  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<json> found = testing::JsonLines(result.out);
  const std::vector<json> expected = testing::JsonLines(rows);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i]["ids"], expected[i]["ids"]) << i;
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
