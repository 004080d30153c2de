// Data rows with images: prompts, given sequences and samples, for a model folder that sees them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/images/image_digest.h"
#include "tests/support/picture_data.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"
#include "tests/support/vision_golden.h"
#include "tools/tandem/driver/image_reader.h"
#include "tools/tandem/driver/prompt_source.h"
#include "tools/tandem/driver/sample_builder.h"
#include "tools/tandem/driver/sample_lines.h"

namespace tandem::driver {
namespace {

using nlohmann::json;
using ::tandem::testing::SquaresPng;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kPlaceholder = 16;

class RowImages : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = testing::WritePictureModel(folder_);
    ASSERT_OK_AND_ASSIGN(tokenizer_, LoadTokenizerIfAny(model_));
    ASSERT_OK_AND_ASSIGN(reader_, ImageReader::Create(model_, tokenizer_.get()));
    ASSERT_NE(reader_, nullptr);
    folder_.Write("data/a.png", SquaresPng(1, 0));
    folder_.Write("data/b.png", SquaresPng(2, 0));
  }

  absl::StatusOr<Prompt> Read(const json& row, RowNeeds needs = {}) {
    config::v1::DataConfig config;
    config.set_prompt_key("prompt");
    config.set_answer_key("answer");
    config.set_chosen_key("chosen");
    config.set_rejected_key("rejected");
    config.set_image_key("images");
    config.set_max_prompt_length(64);
    needs.images = reader_.get();
    needs.end_ids = {2};
    const std::string path = folder_.Write("data/rows.jsonl", row.dump() + "\n");
    absl::StatusOr<PromptSource> source =
        PromptSource::Load({path}, config, tokenizer_.get(), 0, needs);
    if (!source.ok()) return source.status();
    return source->prompts().front();
  }

  static json User(const json& content) { return {{"role", "user"}, {"content", content}}; }
  static json Text(const std::string& text) { return {{"type", "text"}, {"text", text}}; }
  static json Image(const std::string& source = "") {
    return source.empty() ? json{{"type", "image"}} : json{{"type", "image"}, {"image", source}};
  }

  std::string Digest(const std::string& name) const {
    return images::ImageDigest(*ReadPicture(name));
  }
  std::unique_ptr<std::string> ReadPicture(const std::string& name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    return std::make_unique<std::string>(std::istreambuf_iterator<char>(file),
                                         std::istreambuf_iterator<char>());
  }

  const TempFolder folder_;
  std::string model_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::unique_ptr<ImageReader> reader_;
};

TEST_F(RowImages, APromptHasAsManyPlaceholdersAsTheModelSees) {
  ASSERT_OK_AND_ASSIGN(
      const Prompt prompt,
      Read({{"prompt", {User(json::array({Image(), Text("?")}))}}, {"images", {"a.png"}}}));
  EXPECT_THAT(prompt.token_ids, ElementsAre(14, 18, 16, 16, 16, 16, 19, 13, 2, 14));
  ASSERT_EQ(prompt.images.size(), 1U);
  EXPECT_EQ(prompt.images[0].digest, Digest("data/a.png"));
  EXPECT_EQ(prompt.images[0].source, folder_ / "data/a.png");
  ASSERT_OK_AND_ASSIGN(const std::string file, ReadImageFile(prompt.images[0]));
  EXPECT_EQ(file, *ReadPicture("data/a.png"));
}

TEST_F(RowImages, ATextAndIdsHaveImagesToo) {
  ASSERT_OK_AND_ASSIGN(
      const Prompt text,
      Read({{"prompt", "1<|vision_start|><|image_pad|><|vision_end|>"}, {"images", {"a.png"}}}));
  EXPECT_EQ(std::count(text.token_ids.begin(), text.token_ids.end(), kPlaceholder), 4);
  ASSERT_OK_AND_ASSIGN(const Prompt ids,
                       Read({{"prompt", {18, 16, 16, 16, 16, 19}}, {"images", {"b.png"}}}));
  EXPECT_EQ(ids.images[0].digest, Digest("data/b.png"));
  EXPECT_EQ(ids.token_ids.size(), 6U);
}

TEST_F(RowImages, AConversationShowsEachImageInItsTurn) {
  const json messages = {User(json::array({Image("a.png"), Text("?")})),
                         {{"role", "assistant"}, {"content", "1"}},
                         User(json::array({Image("b.png"), Image("a.png")})),
                         {{"role", "assistant"}, {"content", "2"}}};
  ASSERT_OK_AND_ASSIGN(
      const Prompt prompt,
      Read({{"messages", messages}}, {.given = RowNeeds::Given::kCompletion, .generation = false}));
  ASSERT_EQ(prompt.given.size(), 1U);
  const GivenSequence& runs = prompt.given[0];
  ASSERT_EQ(runs.size(), 4U);
  EXPECT_EQ(runs[0].num_images, 1U);
  EXPECT_EQ(runs[1].num_images, 0U);
  EXPECT_EQ(runs[2].num_images, 2U);

  const std::vector<common::v1::Sample> samples = ToSupervisedSamples(1, 0, prompt);
  ASSERT_EQ(samples.size(), 1U);
  EXPECT_THAT(samples[0].segments(0).image_digests(), ElementsAre(Digest("data/a.png")));
  EXPECT_TRUE(samples[0].segments(1).image_digests().empty());
  EXPECT_THAT(samples[0].segments(2).image_digests(),
              ElementsAre(Digest("data/b.png"), Digest("data/a.png")));
  StepImages images;
  AddImages(prompt, images);
  EXPECT_EQ(images.size(), 2U);
}

TEST_F(RowImages, BothCompletionsOfAPairFollowThePicture) {
  const json row = {{"prompt", {User(json::array({Image(), Text("?")}))}},
                    {"images", {"a.png"}},
                    {"chosen", "1"},
                    {"rejected", "3"}};
  const RowNeeds needs = {.given = RowNeeds::Given::kPair, .generation = false};
  ASSERT_OK_AND_ASSIGN(const Prompt prompt, Read(row, needs));
  const std::vector<common::v1::Sample> samples = ToPreferenceSamples(1, 0, prompt);
  ASSERT_EQ(samples.size(), 2U);
  for (const common::v1::Sample& sample : samples) {
    EXPECT_THAT(sample.segments(0).image_digests(), ElementsAre(Digest("data/a.png")));
  }
}

TEST_F(RowImages, AFileThatChangedEndsTheRun) {
  ASSERT_OK_AND_ASSIGN(const Prompt prompt,
                       Read({{"prompt", {User(json::array({Image("a.png")}))}}}));
  folder_.Write("data/a.png", SquaresPng(3, 0));
  EXPECT_THAT(ReadImageFile(prompt.images[0]),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("data/a.png")));
}

TEST_F(RowImages, RecordsWhereTheyAre) {
  const std::string url = "data:image/png;base64," + absl::Base64Escape(SquaresPng(4, 9));
  ASSERT_OK_AND_ASSIGN(Prompt prompt,
                       Read({{"prompt", {User(json::array({Image("a.png"), Image(url)}))}}}));
  Group group;
  group.prompt = prompt;
  group.completions.resize(2);
  std::istringstream lines(SampleLines(1, {group}, 1.0, 0));
  std::string line;
  std::getline(lines, line);
  const json first = json::parse(line)["images"];
  EXPECT_EQ(first[0]["path"], folder_ / "data/a.png");
  EXPECT_EQ(first[1]["path"], url);
  std::getline(lines, line);
  const json second = json::parse(line)["images"];
  EXPECT_TRUE(second[0].contains("path"));
  EXPECT_FALSE(second[1].contains("path"));  // the line before has it
  EXPECT_EQ(second[1]["sha256"], first[1]["sha256"]);
}

TEST_F(RowImages, RefusesImagesThatCannotBeLearnt) {
  const json answer_with_image = {
      User("?"), {{"role", "assistant"}, {"content", json::array({Image("a.png")})}}};
  EXPECT_THAT(
      Read({{"messages", answer_with_image}},
           {.given = RowNeeds::Given::kCompletion, .generation = false}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the completion has an image")));
  EXPECT_THAT(Read({{"prompt", {User(json::array({{{"type", "video"}, {"video", "a.mp4"}}}))}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rows.jsonl:1")));
}

TEST(ImageReaderTest, IsNullForAModelOfText) {
  const TempFolder folder;
  ASSERT_OK_AND_ASSIGN(const auto reader,
                       ImageReader::Create(testing::WriteTinyModel(folder), nullptr));
  EXPECT_EQ(reader, nullptr);
}

// A tower that sees one tile of an image makes 16 rows of each.
TEST(TiledImages, AreToldApartWhereTheyFollowEachOther) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<ImageReader> reader,
                       ImageReader::Create(testing::VisionGolden("llava"), /*tokenizer=*/nullptr));
  std::vector<uint32_t> ids(33, 36);
  ids.front() = 5;
  const std::vector<PromptImage> files(2);
  EXPECT_OK(reader->CheckFit(ids, reader->Expanded(ids, files)));
  ids.pop_back();
  EXPECT_THAT(reader->CheckFit(ids, reader->Expanded(ids, files)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("images[1]")));
}

}  // namespace
}  // namespace tandem::driver
