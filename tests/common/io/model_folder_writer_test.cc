#include "common/io/model_folder_writer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/io/model_folder.h"
#include "tests/common/io/temporary_folder.h"
#include "tests/support/status_matchers.h"

namespace tandem::io {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::NamesIn;
using ::tandem::testing::Slurp;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

absl::Span<const std::byte> BytesOf(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// A source folder with everything that a model has.
void WriteSource(const TemporaryFolder& folder) {
  folder.Write("config.json",
               R"({"hidden_size": 64, "torch_dtype": "bfloat16", "eos_token_id": 2,
                   "quantization_config": {"quant_method": "fp8"}})");
  folder.Write("generation_config.json", R"({"eos_token_id": [2, 5]})");
  folder.Write("tokenizer.json", "{}");
  folder.Write("chat_template.jinja", "x");
  folder.Write("LICENSE", "free");
  folder.Write("model.safetensors", "old weights");
  folder.Write("notes.txt", "private");
}

const std::vector<TensorDeclaration> kTensors = {
    {"a", DType::kF32, {2}}, {"b", DType::kF32, {1}}, {"c", DType::kF32, {3}}};

absl::Status AppendAll(ModelFolderWriter& writer) {
  for (const auto& [name, bytes] : std::vector<std::pair<std::string, std::string>>{
           {"a", "aaaa"}, {"a", "AAAA"}, {"b", "bbbb"}, {"c", "cccccccccccc"}}) {
    if (absl::Status status = writer.Append(name, BytesOf(bytes)); !status.ok()) return status;
  }
  return absl::OkStatus();
}

TEST(ModelFolderWriter, WritesWeightsBesideTheSourcesFiles) {
  TemporaryFolder source, folder;
  WriteSource(source);
  ModelFolderWriter::Options options;
  options.source_folder = source.path();
  ASSERT_OK_AND_ASSIGN(ModelFolderWriter writer,
                       ModelFolderWriter::Create(folder / "model", kTensors, options));
  ASSERT_OK(AppendAll(writer));
  EXPECT_FALSE(std::filesystem::exists(folder / "model"));
  ASSERT_OK(writer.Commit());

  EXPECT_THAT(NamesIn(folder / "model"),
              ElementsAre("LICENSE", "chat_template.jinja", "config.json", "generation_config.json",
                          "model.safetensors", "tokenizer.json"));
  ASSERT_OK_AND_ASSIGN(const ModelFolder model, ModelFolder::Open(folder / "model"));
  EXPECT_THAT(model.names(), ElementsAre("a", "b", "c"));
  EXPECT_THAT(model.config().fields().Int("hidden_size"), IsOkAndHolds(64));
  EXPECT_THAT(model.config().fields().String("torch_dtype"), IsOkAndHolds("float32"));
  EXPECT_FALSE(model.config().fields().Has("quantization_config")) << "the tensors are not";
  EXPECT_THAT(model.config().eos_token_ids, ElementsAre(2, 5));
}

TEST(ModelFolderWriter, SplitsLargeModelsIntoShardsWithAnIndex) {
  TemporaryFolder folder;
  ModelFolderWriter::Options options;
  options.config = {{"hidden_size", 8}};
  options.max_shard_bytes = 12;
  ASSERT_OK_AND_ASSIGN(ModelFolderWriter writer,
                       ModelFolderWriter::Create(folder / "model", kTensors, options));
  ASSERT_OK(AppendAll(writer));
  ASSERT_OK(writer.Commit());

  EXPECT_THAT(NamesIn(folder / "model"),
              ElementsAre("config.json", "model-00001-of-00002.safetensors",
                          "model-00002-of-00002.safetensors", "model.safetensors.index.json"));
  ASSERT_OK_AND_ASSIGN(const ModelFolder model, ModelFolder::Open(folder / "model"));
  EXPECT_THAT(model.names(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(model.size_bytes(), 24);
  ASSERT_OK_AND_ASSIGN(const TensorView c, model.Find("c"));
  EXPECT_EQ(c.bytes[11], std::byte{'c'});
  EXPECT_THAT(Slurp(folder / "model/model.safetensors.index.json"),
              HasSubstr("\"total_size\": 24"));
}

TEST(ModelFolderWriter, GivesATensorLargerThanAShardOneOfItsOwn) {
  TemporaryFolder folder;
  ModelFolderWriter::Options options;
  options.max_shard_bytes = 4;
  ASSERT_OK_AND_ASSIGN(ModelFolderWriter writer,
                       ModelFolderWriter::Create(folder / "model", kTensors, options));
  ASSERT_OK(AppendAll(writer));
  ASSERT_OK(writer.Commit());
  EXPECT_THAT(NamesIn(folder / "model"), SizeIs(3 + 2));
  EXPECT_OK(ModelFolder::Open(folder / "model"));
}

TEST(ModelFolderWriter, WritesTensorsWithoutElements) {
  TemporaryFolder folder;
  ASSERT_OK_AND_ASSIGN(
      ModelFolderWriter writer,
      ModelFolderWriter::Create(folder / "model", {{"none", DType::kF32, {0}}}, {}));
  ASSERT_OK(writer.Commit());
  ASSERT_OK_AND_ASSIGN(const ModelFolder model, ModelFolder::Open(folder / "model"));
  EXPECT_THAT(model.names(), ElementsAre("none"));
}

TEST(ModelFolderWriter, LeavesTheOldModelUntilTheNewOneIsWhole) {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder / "model");
  folder.Write("model/config.json", "{}");
  folder.Write("model/model-old.safetensors", "1");
  ModelFolderWriter::Options options;
  options.replace_model = true;
  {
    ASSERT_OK_AND_ASSIGN(ModelFolderWriter writer,
                         ModelFolderWriter::Create(folder / "model", kTensors, options));
    ASSERT_OK(writer.Append("a", BytesOf("aaaa")));
    EXPECT_THAT(writer.Commit(),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("\"a\"")));
  }
  EXPECT_THAT(NamesIn(folder / "model"), ElementsAre("config.json", "model-old.safetensors"));
  EXPECT_THAT(NamesIn(folder.path()), ElementsAre("model"));

  ASSERT_OK_AND_ASSIGN(ModelFolderWriter writer,
                       ModelFolderWriter::Create(folder / "model", kTensors, options));
  ASSERT_OK(AppendAll(writer));
  ASSERT_OK(writer.Commit());
  EXPECT_THAT(NamesIn(folder / "model"), ElementsAre("config.json", "model.safetensors"));
}

TEST(ModelFolderWriter, RefusesBytesBeyondTheLastTensor) {
  TemporaryFolder folder;
  ASSERT_OK_AND_ASSIGN(ModelFolderWriter writer,
                       ModelFolderWriter::Create(folder / "model", kTensors, {}));
  ASSERT_OK(AppendAll(writer));
  EXPECT_THAT(writer.Append("d", BytesOf("x")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"d\"")));
}

TEST(ModelFolderWriter, NamesTheSourceThatHasNoConfig) {
  TemporaryFolder source, folder;
  ModelFolderWriter::Options options;
  options.source_folder = source.path();
  EXPECT_THAT(ModelFolderWriter::Create(folder / "model", kTensors, options),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(source / "config.json")));
}

}  // namespace
}  // namespace tandem::io
