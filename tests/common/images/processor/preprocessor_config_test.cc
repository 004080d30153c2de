#include "common/images/processor/preprocessor_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/images/processor/image_processor.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::images {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::StatusOr<PreprocessorConfig> Parse(const std::string& type, const std::string& rest = "",
                                         const std::string& processor = "{}") {
  const std::string text = "{\"image_processor_type\": \"" + type + "ImageProcessor\"" + rest + "}";
  return ParsePreprocessorConfig(nlohmann::json::parse(text), nlohmann::json::parse(processor),
                                 "p.json");
}

auto Invalid(const std::string& text) {
  return StatusIs(absl::StatusCode::kInvalidArgument,
                  AllOf(StartsWith("p.json: "), HasSubstr(text)));
}
auto NotBuilt(const std::string& text) {
  return StatusIs(absl::StatusCode::kUnimplemented, AllOf(StartsWith("p.json: "), HasSubstr(text)));
}

TEST(PreprocessorConfig, HasTheDefaultsOfItsClass) {
  ASSERT_OK_AND_ASSIGN(const PreprocessorConfig config,
                       Parse("Qwen2VL", R"(, "size": null, "do_resize": null)"));
  EXPECT_EQ(config.shortest_edge, 56 * 56);
  EXPECT_EQ(config.longest_edge, 28 * 28 * 1280);
  EXPECT_EQ(config.patch_size, 14);
  EXPECT_TRUE(config.do_resize);
  EXPECT_EQ(config.filter, Filter::kBicubic);
}

TEST(PreprocessorConfig, ReadsThePixelsOfOlderFiles) {
  ASSERT_OK_AND_ASSIGN(const PreprocessorConfig config,
                       Parse("Qwen2VL", R"(, "min_pixels": 784, "max_pixels": 7840,
      "size": {"min_pixels": 1, "max_pixels": 2})"));
  EXPECT_EQ(config.shortest_edge, 784);
  EXPECT_EQ(config.longest_edge, 7840);
}

TEST(PreprocessorConfig, PrefersTheEntryOfProcessorConfig) {
  const testing::TempFolder folder;
  folder.Write("preprocessor_config.json",
               R"({"image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 16})");
  ASSERT_OK_AND_ASSIGN(const PreprocessorConfig alone, ReadPreprocessorConfig(folder.path()));
  EXPECT_EQ(alone.patch_size, 16);
  folder.Write("processor_config.json", R"({"processor_class": "Qwen2VLProcessor"})");
  ASSERT_OK_AND_ASSIGN(const PreprocessorConfig beside, ReadPreprocessorConfig(folder.path()));
  EXPECT_EQ(beside.patch_size, 16);
  folder.Write(
      "processor_config.json",
      R"({"image_processor": {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 12}})");
  ASSERT_OK_AND_ASSIGN(const PreprocessorConfig nested, ReadPreprocessorConfig(folder.path()));
  EXPECT_EQ(nested.patch_size, 12);
  EXPECT_EQ(nested.place, folder / "processor_config.json: image_processor");
}

TEST(PreprocessorConfig, SaysThatAFolderHasNone) {
  const testing::TempFolder folder;
  EXPECT_THAT(ReadPreprocessorConfig(folder.path()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no preprocessor_config.json")));
  folder.Write("processor_config.json", R"({"image_processor": 3})");
  EXPECT_THAT(ReadPreprocessorConfig(folder.path()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("image_processor: expected an object")));
  folder.Write("processor_config.json", "{");
  EXPECT_THAT(ReadPreprocessorConfig(folder.path()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("processor_config.json")));
}

TEST(PreprocessorConfig, AppliesWhatTheCallingProcessorOverrides) {
  ASSERT_OK_AND_ASSIGN(
      const PreprocessorConfig internvl,
      Parse("GotOcr2", R"(, "crop_to_patches": false, "processor_class": "InternVLProcessor")"));
  EXPECT_TRUE(internvl.crop_to_patches);
  ASSERT_OK_AND_ASSIGN(
      const PreprocessorConfig mistral3,
      Parse(
          "Pixtral", R"(, "patch_size": 7)",
          R"({"processor_class": "PixtralProcessor", "patch_size": 14, "spatial_merge_size": 2})"));
  EXPECT_EQ(mistral3.pixtral_patch, (ImageSize{28, 28}));
  ASSERT_OK_AND_ASSIGN(const PreprocessorConfig pixtral,
                       Parse("Pixtral", R"(, "processor_class": "PixtralProcessor")"));
  EXPECT_EQ(pixtral.pixtral_patch, (ImageSize{16, 16}));
}

TEST(PreprocessorConfig, NamesAnUnknownClass) {
  EXPECT_THAT(Parse("ViT"), NotBuilt("image_processor_type: 'ViTImageProcessor' is not built; "
                                     "there are Qwen2VLImageProcessor, "));
  EXPECT_THAT(ParsePreprocessorConfig(
                  nlohmann::json::parse(R"({"image_processor_type": "Qwen2VLImageProcessorPil"})"),
                  nlohmann::json::object(), "p.json"),
              NotBuilt("resizes with Pillow"));
  EXPECT_THAT(ParsePreprocessorConfig(nlohmann::json::object(), nlohmann::json::object(), "p.json"),
              Invalid("image_processor_type"));
}

TEST(PreprocessorConfig, RefusesValuesThatItsClassCannotUse) {
  EXPECT_THAT(
      Parse("Qwen2VL", R"(, "resample": 0)"),
      Invalid("resample: expected 1 (Lanczos, as bicubic), 2 (bilinear) or 3 (bicubic), found 0"));
  EXPECT_THAT(Parse("Qwen2VL", R"(, "patch_size": 0)"),
              Invalid("patch_size: expected 1 to 256, found 0"));
  EXPECT_THAT(Parse("Qwen2VL", R"(, "size": {"height": 3, "width": 3})"),
              Invalid("size: expected shortest_edge and longest_edge"));
  EXPECT_THAT(Parse("Qwen2VL", R"(, "min_pixels": 9, "max_pixels": 8)"),
              Invalid("size: at least 9 pixels, but at most 8"));
  EXPECT_THAT(Parse("Qwen2VL", R"(, "image_mean": [0.5])"),
              Invalid("image_mean: expected 3 numbers"));
  EXPECT_THAT(Parse("Qwen2VL", R"(, "image_std": [1, 0, 1])"),
              Invalid("image_std: expected numbers above 0"));
  EXPECT_THAT(Parse("Qwen2VL", R"(, "rescale_factor": 0)"),
              Invalid("rescale_factor: expected a number above 0"));
  EXPECT_THAT(Parse("CLIP", R"(, "size": {"shortest_edge": 3, "longest_edge": 5})"),
              Invalid("size: expected either height and width"));
  EXPECT_THAT(Parse("Pixtral", R"(, "size": {"shortest_edge": 3})"), Invalid("longest_edge alone"));
  EXPECT_THAT(Parse("Gemma3", R"(, "size": {"longest_edge": 3})"),
              Invalid("size: expected height and width"));
  EXPECT_THAT(Parse("Gemma3", R"(, "size": {"height": 70000, "width": 3})"),
              Invalid("height: expected 1 to 65535"));
  EXPECT_THAT(Parse("Gemma3", R"(, "size": 9000)"),
              Invalid("size: 9000 x 9000 pixels are above 67108864"));
  EXPECT_THAT(Parse("Qwen2VL", R"(, "max_pixels": 1000000000)"),
              Invalid("max_pixels: expected 1 to 67108864"));
  EXPECT_THAT(Parse("GotOcr2", R"(, "min_patches": 13)"),
              Invalid("min_patches: is 13, above max_patches, 12"));
  EXPECT_THAT(Parse("LlavaOnevision", R"(, "image_grid_pinpoints": [[384]])"),
              Invalid("image_grid_pinpoints: expected [height, width]"));
  EXPECT_THAT(Parse("LlavaOnevision", R"(, "image_grid_pinpoints": 5)"),
              Invalid("expected a list of [height, width]"));
}

TEST(PreprocessorConfig, RefusesCombinationsThatAreNotBuilt) {
  EXPECT_THAT(Parse("Qwen2VL", R"(, "do_rescale": false, "do_normalize": false)"),
              NotBuilt("do_rescale and do_normalize"));
  EXPECT_THAT(Parse("Gemma3", R"(, "do_resize": false)"), NotBuilt("do_resize"));
  EXPECT_THAT(Parse("Gemma3", R"(, "do_pan_and_scan": true)"), NotBuilt("do_pan_and_scan"));
  EXPECT_THAT(Parse("CLIP", R"(, "do_pad": true)"), NotBuilt("do_pad"));
  EXPECT_THAT(Parse("CLIP", R"(, "do_center_crop": false)"), NotBuilt("do_center_crop"));
  EXPECT_THAT(Parse("LlavaOnevision", R"(, "do_center_crop": true)"), NotBuilt("do_center_crop"));
  EXPECT_THAT(Parse("LlavaOnevision", R"(, "crop_size": 336)"), NotBuilt("crop_size"));
  EXPECT_THAT(Parse("LlavaOnevision", R"(, "size": {"height": 384, "width": 192})"),
              NotBuilt("size: tiles are built as squares"));
  EXPECT_THAT(Parse("LlavaOnevision", R"(, "image_grid_pinpoints": [[384, 400]])"),
              NotBuilt("not a whole number of tiles"));
}

absl::Status Process(const std::string& type, const std::string& rest, int64_t height,
                     int64_t width) {
  auto config = Parse(type, rest);
  if (!config.ok()) return config.status();
  const Image image{height, width, std::vector<uint8_t>(height * width * 3)};
  return ImageProcessor(*config).Process(image).status();
}

TEST(ImageProcessor, RefusesImagesThatItCannotBringIntoShape) {
  EXPECT_THAT(Process("Qwen2VL", "", 1, 201),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("201 x 1 pixels; a side is at most 200 times")));
  EXPECT_OK(Process("Qwen2VL", "", 1, 200));
  EXPECT_THAT(Process("Qwen2VL", R"(, "do_resize": false)", 28, 30),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("multiples of 28")));
  // The shorter side would grow to 224, and the longer one with it.
  EXPECT_THAT(Process("CLIP", "", 1, 60000),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("makes 13440000 x 224")));
  EXPECT_THAT(Process("Pixtral", R"(, "size": {"longest_edge": 128})", 1, 600),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a side vanishes")));
}

TEST(ImageProcessor, BoundsWhatItMakesOfAnImage) {
  EXPECT_THAT(Process("Llava", R"(, "do_pad": true)", 9000, 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("makes 9000 x 9000; expected 1 to 67108864 pixels")));
}

TEST(ImageProcessor, TilesOfIdefics3AreLimitedBeforeAnImageIsRead) {
  const auto error_of = [](const char* more) {
    return std::string(Parse("Idefics3", more).status().message());
  };
  EXPECT_THAT(error_of(R"(, "size": {"longest_edge": 700}, "max_image_size": {"longest_edge": 7})"),
              AllOf(HasSubstr("max_image_size"),
                    HasSubstr("into up to 100 tiles on a side; expected at most 64")));
  EXPECT_THAT(
      error_of(R"(, "size": {"height": 7, "width": 65}, "max_image_size": {"longest_edge": 1})"),
      HasSubstr("into up to 65 tiles"));
  // A side of 63 may become one of 64, and none is above 4096.
  EXPECT_THAT(error_of(R"(, "size": {"longest_edge": 63}, "max_image_size": {"longest_edge": 1})"),
              "");
  EXPECT_THAT(
      error_of(R"(, "size": {"longest_edge": 9000}, "max_image_size": {"longest_edge": 64})"), "");
  // Nothing is cut.
  EXPECT_THAT(error_of(R"(, "size": {"longest_edge": 700}, "max_image_size": {"longest_edge": 7},
                            "do_image_splitting": false)"),
              "");
  EXPECT_THAT(error_of(R"(, "max_image_size": {"longest_edge": 0})"), HasSubstr("longest_edge"));
}

TEST(ImageProcessor, PixtralsPlaceholdersAreLinesOfBlocks) {
  ASSERT_OK_AND_ASSIGN(const PreprocessorConfig config, Parse("Pixtral"));
  EXPECT_EQ(
      config.placeholders,
      (PlaceholderTexts{.placeholder = "[IMG]", .line_break = "[IMG_BREAK]", .end = "[IMG_END]"}));
  const ImageProcessor processor(config);
  EXPECT_THAT(processor.Placeholders({100, 33}), IsOkAndHolds(PlaceholderGrid{7, 3}));
  EXPECT_THAT(processor.NumPlaceholders({100, 33}), IsOkAndHolds(21));
  EXPECT_THAT(processor.Placeholders({1, 4000}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a side vanishes")));
  ASSERT_OK_AND_ASSIGN(
      const PreprocessorConfig named,
      Parse("Pixtral", "", R"({"image_token": "<image>", "image_break_token": "<line>"})"));
  EXPECT_EQ(
      named.placeholders,
      (PlaceholderTexts{.placeholder = "<image>", .line_break = "<line>", .end = "[IMG_END]"}));
}

TEST(ImageProcessor, CountsPlaceholdersOfQwenAndPixtralOnly) {
  ASSERT_OK_AND_ASSIGN(const PreprocessorConfig config, Parse("Gemma3"));
  EXPECT_THAT(ImageProcessor(config).NumPlaceholders({10, 10}),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("placeholders of Gemma3ImageProcessor")));
}

}  // namespace
}  // namespace tandem::images
