#include "common/model/images/image_preparer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/escaping.h"
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

// FIPS 180-2's example.
TEST(ImageDigest, IsSha256) {
  EXPECT_EQ(absl::BytesToHexString(images::ImageDigest("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace tandem::model
