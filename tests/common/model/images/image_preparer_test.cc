#include "common/model/images/image_preparer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "absl/strings/escaping.h"
#include "common/images/decode.h"
#include "common/images/image_digest.h"
#include "common/io/model_config.h"
#include "common/io/read_file.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/vision_golden.h"

namespace tandem::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ImagePreparerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::VisionGolden("qwen2-vl");
    ASSERT_OK_AND_ASSIGN(const io::ModelConfig config, io::ReadModelConfig(folder_));
    ASSERT_OK_AND_ASSIGN(spec_, ParseModelSpec(config.json, config.path));
    ASSERT_OK_AND_ASSIGN(file_, io::ReadFile(folder_ + "/a.png", 1 << 20));
  }

  std::string folder_;
  ModelSpec spec_;
  std::string file_;
};

TEST_F(ImagePreparerTest, MakesThePatchesThatTheTowerTakes) {
  ASSERT_OK_AND_ASSIGN(const ImagePreparer preparer, ImagePreparer::Load(folder_, *spec_.vision));
  ASSERT_OK_AND_ASSIGN(const PreparedImage image, preparer.Prepare(file_, "images[0]"));
  // 61 x 45 pixels, shrunk to at most 1920 of them, in patches of 4 x 4.
  EXPECT_EQ(image.grid.rows, 8);
  EXPECT_EQ(image.grid.columns, 12);
  EXPECT_EQ(static_cast<int64_t>(image.pixel_values.size()),
            image.grid.num_patches() * spec_.vision->patch_elements());
}

TEST_F(ImagePreparerTest, NamesTheImageThatCannotBeRead) {
  ASSERT_OK_AND_ASSIGN(const ImagePreparer preparer, ImagePreparer::Load(folder_, *spec_.vision));
  EXPECT_THAT(preparer.Prepare(file_.substr(0, file_.size() / 2), "images[3]").status().message(),
              AllOf(HasSubstr("images[3]: "), HasSubstr("PNG")));
  EXPECT_THAT(preparer.Prepare("", "images[0]").status().message(),
              HasSubstr("images[0]: expected an image, found no bytes"));
}

TEST_F(ImagePreparerTest, RefusesAProcessorOfAnotherModel) {
  const testing::TempFolder scratch;
  ASSERT_OK_AND_ASSIGN(const std::string text,
                       io::ReadFile(folder_ + "/preprocessor_config.json", 1 << 20));
  nlohmann::json config = nlohmann::json::parse(text);
  config["patch_size"] = 14;
  const std::string path = scratch.Write("preprocessor_config.json", config.dump());
  const absl::Status status = ImagePreparer::Load(scratch.path(), *spec_.vision).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("preprocessor_config.json"),
                                      HasSubstr("patch_size: expected 4"), HasSubstr("found 14")));
  std::filesystem::remove(path);
  EXPECT_EQ(ImagePreparer::Load(scratch.path(), *spec_.vision).status().code(),
            absl::StatusCode::kNotFound);
}

// The number of rows is known before the pixels are made.
TEST(ImagePreparerOfTiles, MakesThePatchesOfEachTile) {
  for (const std::string& name : testing::TileGoldenCases()) {
    SCOPED_TRACE(name);
    const std::string folder = testing::VisionGolden(name);
    ASSERT_OK_AND_ASSIGN(const io::ModelConfig config, io::ReadModelConfig(folder));
    ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(config.json, config.path));
    ASSERT_OK_AND_ASSIGN(const ImagePreparer preparer, ImagePreparer::Load(folder, *spec.vision));
    ASSERT_OK_AND_ASSIGN(const std::string file, io::ReadFile(folder + "/a.png", 1 << 20));
    ASSERT_OK_AND_ASSIGN(const PreparedImage image, preparer.Prepare(file, "images[0]"));
    // 61 x 45 pixels: of the numbers of tiles up to 6, 3 x 2 are nearest to their shape, and one shows the
    // whole.
    const int64_t side = name == "gemma3-long" ? 13 : 4;
    EXPECT_EQ(image.grid.columns, side);
    EXPECT_EQ(image.grid.rows, name == "internvl" ? 7 * side : side);
    EXPECT_EQ(static_cast<int64_t>(image.pixel_values.size()),
              image.grid.num_patches() * spec.vision->patch_elements());
    const images::PlaceholderGrid grid{1, NumImageRows(*spec.vision, image.grid)};
    EXPECT_THAT(preparer.Placeholders({45, 61}), testing::IsOkAndHolds(grid));
    EXPECT_EQ(image.placeholders, grid);
    EXPECT_EQ(preparer.PatchesOf(grid).rows, image.grid.rows);
    EXPECT_EQ(preparer.PatchesOf(grid).columns, image.grid.columns);
    // Only InternVL's images have tokens around them, that their placeholders need not be counted.
    if (spec.vision->template_writes_start) {
      EXPECT_EQ(preparer.placeholders().written, "<start_of_image>");
      EXPECT_EQ(preparer.placeholders().written_out,
                "\n\n<start_of_image><image_soft_token><end_of_image>\n\n");
      continue;
    }
    const bool has_bounds = spec.vision->merge_size == 2;
    EXPECT_EQ(preparer.placeholders(),
              (has_bounds ? images::PlaceholderTexts{.start = "<img>", .end = "</img>"}
                          : images::PlaceholderTexts{.fixed_count = grid.columns}));
  }
}

TEST(ImagePreparerOfTiles, RefusesAProcessorOfAnotherModel) {
  const std::string folder = testing::VisionGolden("llava");
  ASSERT_OK_AND_ASSIGN(const io::ModelConfig config, io::ReadModelConfig(folder));
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(config.json, config.path));
  const testing::TempFolder scratch;
  const auto error_with = [&](const char* text) {
    scratch.Write("preprocessor_config.json", text);
    return std::string(ImagePreparer::Load(scratch.path(), *spec.vision).status().message());
  };
  EXPECT_THAT(error_with(R"({"image_processor_type": "CLIPImageProcessor"})"),
              AllOf(HasSubstr("crop_size: expected 16"), HasSubstr("found 224")));
  EXPECT_THAT(error_with(R"({"image_processor_type": "SiglipImageProcessor"})"),
              HasSubstr("size: expected 16"));
  EXPECT_THAT(error_with(R"({"image_processor_type": "GotOcr2ImageProcessor", "size": 16,
                             "crop_to_patches": true})"),
              HasSubstr("crop_to_patches: expected false"));
  EXPECT_THAT(
      error_with(R"({"image_processor_type": "Qwen2VLImageProcessor"})"),
      AllOf(HasSubstr("Qwen2VLImageProcessor makes no tiles"), HasSubstr("CLIPImageProcessor")));
}

// LLaVA-OneVision's.
class CanvasPreparer : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(const io::ModelConfig config, io::ReadModelConfig(folder_));
    ASSERT_OK_AND_ASSIGN(spec_, ParseModelSpec(config.json, config.path));
  }

  // What is said of a processor with these changes.
  std::string ErrorWith(const nlohmann::json& changes, const nlohmann::json& processor) const {
    nlohmann::json config = io::ReadJsonFile(folder_ + "/preprocessor_config.json").value();
    config.update(changes);
    scratch_.Write("preprocessor_config.json", config.dump());
    scratch_.Write("processor_config.json", processor.dump());
    return std::string(ImagePreparer::Load(scratch_.path(), *spec_.vision).status().message());
  }

  const std::string folder_ = testing::VisionGolden("llava-onevision");
  const testing::TempFolder scratch_;
  ModelSpec spec_;
};

TEST_F(CanvasPreparer, MakesTilesOfAnImageAloneAndOneAmongOthers) {
  ASSERT_OK_AND_ASSIGN(const ImagePreparer preparer, ImagePreparer::Load(folder_, *spec_.vision));
  EXPECT_EQ(preparer.placeholders(), (images::PlaceholderTexts{.count_among_others = 17}));
  ASSERT_OK_AND_ASSIGN(const std::string file, io::ReadFile(folder_ + "/a.png", 1 << 20));
  // 61 x 45 pixels on a canvas of 36 x 36, of which 36 x 27 are the image: of 8 lines 6.
  for (const auto& [form, tiles, rows] :
       {std::tuple(images::ImageForm::kAlone, 5, 16 + 6 * (8 + 1)),
        std::tuple(images::ImageForm::kAmongOthers, 1, 16 + 1)}) {
    ASSERT_OK_AND_ASSIGN(const PreparedImage image, preparer.Prepare(file, "images[0]", form));
    EXPECT_EQ(image.grid.rows, 4 * tiles);
    EXPECT_EQ(image.grid.columns, 4);
    EXPECT_EQ(static_cast<int64_t>(image.pixel_values.size()),
              image.grid.num_patches() * spec_.vision->patch_elements());
    EXPECT_EQ(NumImageRows(*spec_.vision, image.grid), rows);
    const images::PlaceholderGrid grid{1, rows};
    EXPECT_THAT(preparer.Placeholders({45, 61}, form), testing::IsOkAndHolds(grid));
    EXPECT_EQ(image.placeholders, grid);
    EXPECT_EQ(NumImageRows(*spec_.vision, preparer.PatchesOf(grid)), rows);
  }
  // An image so long that the square around it is too large.
  EXPECT_THAT(preparer.Placeholders({1, 20'000}, images::ImageForm::kAmongOthers),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("20000 x 20000")));
  EXPECT_OK(preparer.Placeholders({1, 20'000}).status());
}

TEST_F(CanvasPreparer, RefusesAProcessorOfAnotherModel) {
  const nlohmann::json none = nlohmann::json::object();
  EXPECT_THAT(ErrorWith(none, none), "");
  EXPECT_THAT(ErrorWith({{"image_grid_pinpoints", {{18, 18}}}}, none),
              HasSubstr("image_grid_pinpoints: expected those of config.json"));
  EXPECT_THAT(ErrorWith({{"image_grid_pinpoints", {{18, 20}}}}, none),
              HasSubstr("image_grid_pinpoints: [18, 20] is not a whole number of tiles"));
  EXPECT_THAT(ErrorWith({{"image_grid_pinpoints", {{1800, 1800}}}}, none),
              HasSubstr("image_grid_pinpoints: [1800, 1800] has more than 4096 tiles of 18 x 18"));
  EXPECT_THAT(
      ErrorWith({{"size", {{"height", 20}, {"width", 20}}}, {"image_grid_pinpoints", {{20, 20}}}},
                none),
      HasSubstr("size: expected 18"));
  EXPECT_THAT(ErrorWith({{"image_processor_type", "SiglipImageProcessor"}}, none),
              HasSubstr("expected LlavaOnevisionImageProcessor"));
  nlohmann::json processor = {{"processor_class", "LlavaOnevisionProcessor"},
                              {"num_image_tokens", 16},
                              {"vision_aspect_ratio", "anyres_max_9"}};
  EXPECT_THAT(ErrorWith(none, processor), "");
  processor["num_image_tokens"] = 729;
  EXPECT_THAT(ErrorWith(none, processor), HasSubstr("num_image_tokens of processor_config.json"));
  processor["num_image_tokens"] = nullptr;
  processor["vision_aspect_ratio"] = "anyres_max_4";
  EXPECT_THAT(ErrorWith(none, processor),
              AllOf(HasSubstr("expected anyres_max_9"), HasSubstr("found anyres_max_4")));
}

class Idefics3Preparer : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::VisionGolden("idefics3");
    ASSERT_OK_AND_ASSIGN(const io::ModelConfig config, io::ReadModelConfig(folder_));
    ASSERT_OK_AND_ASSIGN(spec_, ParseModelSpec(config.json, config.path));
  }

  std::string ErrorWith(const std::string& preprocessor,
                        const std::string& processor = "{}") const {
    const testing::TempFolder scratch;
    scratch.Write("preprocessor_config.json", preprocessor);
    scratch.Write("processor_config.json", processor);
    return std::string(ImagePreparer::Load(scratch.path(), *spec_.vision).status().message());
  }

  std::string folder_;
  ModelSpec spec_;
};

TEST_F(Idefics3Preparer, KnowsTheTilesOfAnImageBeforeItsPixels) {
  ASSERT_OK_AND_ASSIGN(const ImagePreparer preparer, ImagePreparer::Load(folder_, *spec_.vision));
  // At most 50 pixels on a side, in tiles of 18.
  EXPECT_EQ(preparer.placeholders(),
            (images::PlaceholderTexts{.start = "<fake_token_around_image>",
                                      .end = "<fake_token_around_image>",
                                      .tiles = images::TileTexts{"<global-img>", 3}}));
  const struct {
    const char* name;
    images::ImageSize size;
    images::PlaceholderGrid grid;
  } cases[] = {{"a.png", {45, 61}, {10, 4, 3}},
               {"b.png", {12, 60}, {4, 4, 3}},
               {"c.png", {30, 7}, {4, 4, 1}}};
  for (const auto& [name, size, grid] : cases) {
    SCOPED_TRACE(name);
    ASSERT_OK_AND_ASSIGN(const std::string file, io::ReadFile(folder_ + "/" + name, 1 << 20));
    ASSERT_OK_AND_ASSIGN(const PreparedImage image, preparer.Prepare(file, "images[0]"));
    EXPECT_THAT(preparer.Placeholders(size), testing::IsOkAndHolds(grid));
    EXPECT_EQ(image.placeholders, grid);
    EXPECT_EQ(image.grid.columns, 4);
    EXPECT_EQ(image.grid.rows, 4 * grid.rows);
    EXPECT_EQ(preparer.PatchesOf(grid).rows, image.grid.rows);
    EXPECT_EQ(static_cast<int64_t>(image.pixel_values.size()),
              image.grid.num_patches() * spec_.vision->patch_elements());
  }
}

TEST_F(Idefics3Preparer, RefusesAProcessorOfAnotherModel) {
  EXPECT_THAT(ErrorWith(R"({"image_processor_type": "GotOcr2ImageProcessor"})"),
              HasSubstr("image_processor_type: expected Idefics3ImageProcessor"));
  EXPECT_THAT(ErrorWith(R"({"image_processor_type": "SmolVLMImageProcessor"})"),
              AllOf(HasSubstr("max_image_size.longest_edge: expected 18"), HasSubstr("found 364")));
  const std::string fits = io::ReadFile(folder_ + "/preprocessor_config.json", 1 << 20).value();
  EXPECT_EQ(ErrorWith(fits, R"({"image_seq_len": 4})"), "");
  EXPECT_THAT(ErrorWith(fits, R"({"image_seq_len": 64})"),
              AllOf(HasSubstr("image_seq_len"), HasSubstr("expected 4"), HasSubstr("found 64")));
  ASSERT_OK_AND_ASSIGN(const io::ModelConfig llava,
                       io::ReadModelConfig(testing::VisionGolden("llava")));
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(llava.json, llava.path));
  EXPECT_THAT(std::string(ImagePreparer::Load(folder_, *spec.vision).status().message()),
              HasSubstr("Idefics3ImageProcessor is of models whose tiles have texts"));
}

// Pixtral's processor has two files; the sizes of processor_config.json count.
TEST(PixtralPreparer, MakesPatchesInTheOrderOfTheRows) {
  const std::string folder = testing::VisionGolden("mistral3");
  ASSERT_OK_AND_ASSIGN(const io::ModelConfig config, io::ReadModelConfig(folder));
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(config.json, config.path));
  ASSERT_OK_AND_ASSIGN(const ImagePreparer preparer, ImagePreparer::Load(folder, *spec.vision));
  EXPECT_EQ(preparer.placeholders(),
            (images::PlaceholderTexts{
                .placeholder = "[IMG]", .line_break = "[IMG_BREAK]", .end = "[IMG_END]"}));
  ASSERT_OK_AND_ASSIGN(const std::string file, io::ReadFile(folder + "/a.png", 1 << 20));
  ASSERT_OK_AND_ASSIGN(const PreparedImage image, preparer.Prepare(file, "images[0]"));
  // 61 x 45 pixels, shrunk to 48 x 35, and up to whole rows of 8 x 8: 48 x 40.
  EXPECT_EQ(image.grid.rows, 10);
  EXPECT_EQ(image.grid.columns, 12);
  ASSERT_OK_AND_ASSIGN(const images::ImageProcessor processor,
                       images::ImageProcessor::Load(folder));
  const images::PlaceholderGrid grid{5, 6};
  EXPECT_THAT(preparer.Placeholders({45, 61}), testing::IsOkAndHolds(grid));
  EXPECT_EQ(image.placeholders, grid);
  EXPECT_EQ(preparer.PatchesOf(grid).num_patches(), image.grid.num_patches());
  ASSERT_OK_AND_ASSIGN(const images::Image decoded, images::DecodeImage(file, "a.png", {}));
  ASSERT_OK_AND_ASSIGN(const images::ProcessedImage planes, processor.Process(decoded));
  // The third patch of the second row: color 1, y 2, x 3.
  const float value = image.pixel_values[(4 + 2) * 48 + 1 * 16 + 2 * 4 + 3];
  EXPECT_EQ(value, planes.pixel_values[(1 * 40 + (4 + 2)) * 48 + (8 + 3)]);
}

TEST(PixtralPreparer, RefusesAProcessorOfAnotherModel) {
  const std::string folder = testing::VisionGolden("mistral3");
  ASSERT_OK_AND_ASSIGN(const io::ModelConfig config, io::ReadModelConfig(folder));
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(config.json, config.path));
  EXPECT_THAT(ImagePreparer::Load(testing::VisionGolden("qwen2-vl"), *spec.vision).status(),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("expected PixtralImageProcessor")));
  // Without processor_config.json nothing says that patches are merged.
  const testing::TempFolder scratch;
  ASSERT_OK_AND_ASSIGN(const std::string text,
                       io::ReadFile(folder + "/preprocessor_config.json", 1 << 20));
  scratch.Write("preprocessor_config.json", text);
  EXPECT_THAT(ImagePreparer::Load(scratch.path(), *spec.vision).status(),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                AllOf(HasSubstr("patch_size: expected sides of 8 pixels"),
                                      HasSubstr("found 16 x 16"))));
}

// FIPS 180-2's example.
TEST(ImageDigest, IsSha256) {
  EXPECT_EQ(absl::BytesToHexString(images::ImageDigest("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace tandem::model
