#include "common/checkpoint/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "common/io/model_folder.h"
#include "common/io/safetensors.h"
#include "tests/common/checkpoint/checkpoint_files.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::checkpoint {
namespace {

using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::HasSubstr;

class ExportTest : public ::testing::Test {
 protected:
  ExportTest() {
    folder_.Write("source/config.json",
                  R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
                      "vocab_size": 7, "hidden_size": 6, "intermediate_size": 8,
                      "num_hidden_layers": 1, "num_attention_heads": 1})");
    folder_.Write("source/tokenizer.json", "{}");
    options_.checkpoint = folder_ / "c";
    options_.output = folder_ / "out";
  }

  const TempFolder folder_;
  ExportOptions options_;
};

TEST_F(ExportTest, JoinsTheRanksPartsOfEveryTensor) {
  ASSERT_OK(WriteSmallCheckpoint(options_.checkpoint, {3, 2}, folder_ / "source"));

  ASSERT_OK_AND_ASSIGN(const ExportReport report, ExportCheckpoint(options_));

  EXPECT_EQ(report.step, 3);
  EXPECT_EQ(report.num_tensors, 3);
  ASSERT_OK_AND_ASSIGN(const auto file,
                       io::SafetensorsFile::Open(options_.output + "/model.safetensors"));
  for (size_t t = 0; t < SmallTensors().size(); ++t) {
    ASSERT_OK_AND_ASSIGN(const io::TensorView view, file.Find(SmallTensors()[t].name));
    EXPECT_EQ(view.shape, SmallTensors()[t].shape);
    for (int64_t i = 0; i < view.num_elements(); ++i) {
      float value;
      std::memcpy(&value, view.bytes.data() + i * 4, 4);
      EXPECT_EQ(value, ElementOf(t, "master", i));
    }
  }
  EXPECT_TRUE(std::filesystem::exists(options_.output + "/tokenizer.json"));
}

TEST_F(ExportTest, WritesSeveralFilesAndAnIndexWhereTheModelIsLarge) {
  ASSERT_OK(WriteSmallCheckpoint(options_.checkpoint, {2, 1}, folder_ / "source"));
  options_.max_shard_bytes = 100;
  options_.dtype = io::DType::kBF16;

  ASSERT_OK(ExportCheckpoint(options_));

  ASSERT_OK_AND_ASSIGN(const auto model, io::ModelFolder::Open(options_.output));
  EXPECT_TRUE(std::filesystem::exists(options_.output + "/model.safetensors.index.json"));
  EXPECT_TRUE(std::filesystem::exists(options_.output + "/model-00002-of-00002.safetensors"));
}

TEST_F(ExportTest, LeavesNothingBehindWhereTheCheckpointIsDamaged) {
  ASSERT_OK(WriteSmallCheckpoint(options_.checkpoint, {2, 1}, folder_ / "source"));
  {
    std::fstream file(options_.checkpoint + "/rank-1-of-2.bin",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.put('\x7f');
  }

  EXPECT_THAT(ExportCheckpoint(options_).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("rank-1-of-2.bin is damaged")));
  EXPECT_FALSE(std::filesystem::exists(options_.output));
}

TEST_F(ExportTest, WritesIntoNoFolderWithFilesAndFindsThatOutFirst) {
  folder_.Write("out/notes.txt", "mine");

  // Before it looks for the checkpoint, which is not there.
  EXPECT_THAT(ExportCheckpoint(options_).status(),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(options_.output)));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out/notes.txt"));
}

TEST_F(ExportTest, NamesTheConfigurationThatIsNoModels) {
  ASSERT_OK(WriteSmallCheckpoint(options_.checkpoint, {1, 1}, folder_ / "source"));
  folder_.Write("source/config.json", "{}");

  const absl::Status status = ExportCheckpoint(options_).status();

  EXPECT_THAT(std::string(status.message()), HasSubstr("source/config.json"));
  EXPECT_FALSE(std::filesystem::exists(options_.output));
}

TEST_F(ExportTest, NamesTheModelsThatTheCheckpointHas) {
  ASSERT_OK(WriteSmallCheckpoint(options_.checkpoint, {1, 1}, folder_ / "source"));
  options_.model = "critic";

  EXPECT_THAT(ExportCheckpoint(options_).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("it has policy")));
}

TEST_F(ExportTest, SaysWhereItLookedForTheConfiguration) {
  ASSERT_OK(WriteSmallCheckpoint(options_.checkpoint, {1, 1}, folder_ / "gone"));

  const absl::Status status = ExportCheckpoint(options_).status();

  EXPECT_THAT(std::string(status.message()), HasSubstr("--source names another folder"));
  options_.source_folder = folder_ / "source";
  EXPECT_OK(ExportCheckpoint(options_).status());
}

}  // namespace
}  // namespace tandem::checkpoint
