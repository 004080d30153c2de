#include "common/io/model_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/common/io/safetensors_bytes.h"
#include "tests/common/io/temporary_folder.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace tandem::io {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::SafetensorsBytes;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kNotFound = absl::StatusCode::kNotFound;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// A file with one tensor of one byte.
std::string OneTensor(const std::string& name, const std::string& byte) {
  return SafetensorsBytes(
      "{\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", byte);
}

// Three shards of one tensor each, and their index.
void WriteShards(const TemporaryFolder& folder) {
  folder.Write("config.json", R"({"hidden_size": 64})");
  folder.Write("s-1.safetensors", OneTensor("a", "1"));
  folder.Write("s-2.safetensors", OneTensor("b", "2"));
  folder.Write("s-3.safetensors", OneTensor("c", "3"));
  folder.Write("model.safetensors.index.json",
               R"({"metadata": {"total_size": 3}, "weight_map":
                   {"c": "s-3.safetensors", "a": "s-1.safetensors", "b": "s-2.safetensors"}})");
}

TEST(ModelFolder, FindsTensorsOfASingleFile) {
  TemporaryFolder folder;
  folder.Write("config.json", R"({"hidden_size": 64})");
  folder.Write("model.safetensors", OneTensor("w", "7"));
  ASSERT_OK_AND_ASSIGN(const ModelFolder model, ModelFolder::Open(folder.path()));
  EXPECT_THAT(model.names(), ElementsAre("w"));
  EXPECT_EQ(model.size_bytes(), 1);
  ASSERT_OK_AND_ASSIGN(const TensorView w, model.Find("w"));
  EXPECT_EQ(w.bytes[0], std::byte{'7'});
  EXPECT_THAT(model.config().fields().Int("hidden_size"), IsOkAndHolds(64));
  EXPECT_FALSE(model.HasTokenizer());
}

TEST(ModelFolder, FindsTensorsAcrossShards) {
  TemporaryFolder folder;
  WriteShards(folder);
  ASSERT_OK_AND_ASSIGN(const ModelFolder model, ModelFolder::Open(folder.path()));
  EXPECT_THAT(model.names(), ElementsAre("a", "b", "c"));
  ASSERT_OK_AND_ASSIGN(const TensorView b, model.Find("b"));
  EXPECT_EQ(b.bytes[0], std::byte{'2'});
  EXPECT_THAT(model.Find("d"),
              StatusIs(kNotFound, AllOf(HasSubstr("\"d\""), HasSubstr(folder.path()))));
}

TEST(ModelFolder, NamesTheMissingShardAndWhoAsksForIt) {
  TemporaryFolder folder;
  WriteShards(folder);
  std::filesystem::remove(folder / "s-2.safetensors");
  EXPECT_THAT(
      ModelFolder::Open(folder.path()),
      StatusIs(kNotFound, AllOf(HasSubstr(folder / "model.safetensors.index.json"),
                                HasSubstr("1 of 3 shards missing"), HasSubstr("s-2.safetensors"),
                                Not(HasSubstr("s-1.safetensors")))));
}

TEST(ModelFolder, NamesTheTensorThatItsShardLacks) {
  TemporaryFolder folder;
  WriteShards(folder);
  folder.Write("s-2.safetensors", OneTensor("other", "2"));
  EXPECT_THAT(
      ModelFolder::Open(folder.path()),
      StatusIs(kNotFound, AllOf(HasSubstr(folder / "s-2.safetensors"), HasSubstr("\"b\""))));
}

TEST(ModelFolder, NamesTheShardThatIsDamaged) {
  TemporaryFolder folder;
  WriteShards(folder);
  folder.Write("s-3.safetensors", OneTensor("c", ""));
  EXPECT_THAT(ModelFolder::Open(folder.path()),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(folder / "s-3.safetensors"), HasSubstr("\"c\""))));
}

TEST(ModelFolder, RefusesAnIndexThatReachesIntoOtherFolders) {
  TemporaryFolder folder;
  WriteShards(folder);
  for (const char* file : {"../x.safetensors", "/etc/passwd", "..", ""}) {
    folder.Write("model.safetensors.index.json",
                 std::string(R"({"weight_map": {"a": ")") + file + "\"}}");
    EXPECT_THAT(ModelFolder::Open(folder.path()),
                StatusIs(kInvalid, AllOf(HasSubstr("weight_map: a: "), HasSubstr("same folder"))));
  }
}

TEST(ModelFolder, NamesTheFieldOfABadIndex) {
  TemporaryFolder folder;
  WriteShards(folder);
  folder.Write("model.safetensors.index.json", R"({"weights": {}})");
  EXPECT_THAT(ModelFolder::Open(folder.path()),
              StatusIs(kInvalid, HasSubstr("weight_map: expected an object")));
  folder.Write("model.safetensors.index.json", R"({"weight_map": {}})");
  EXPECT_THAT(ModelFolder::Open(folder.path()), StatusIs(kInvalid, HasSubstr("found none")));
  folder.Write("model.safetensors.index.json", R"({"weight_map": {"a": 1}})");
  EXPECT_THAT(ModelFolder::Open(folder.path()), StatusIs(kInvalid, HasSubstr("the number 1")));
}

TEST(ModelFolder, TellsWhatAFolderWithoutWeightsLacks) {
  TemporaryFolder folder;
  EXPECT_THAT(ModelFolder::Open(folder / "no"), StatusIs(kNotFound, HasSubstr("found nothing")));
  EXPECT_THAT(ModelFolder::Open(folder.path()), StatusIs(kNotFound, HasSubstr("config.json")));
  folder.Write("config.json", "{}");
  EXPECT_THAT(ModelFolder::Open(folder.path()),
              StatusIs(kNotFound, HasSubstr("model.safetensors")));
  folder.Write("pytorch_model.bin", "x");
  EXPECT_THAT(ModelFolder::Open(folder.path()), StatusIs(kNotFound, HasSubstr("convert it")));
}

TEST(ModelFolder, FindsTiedWeightsByTheirOtherName) {
  SKIP_WITHOUT_DATA("models/tinystories-656k");
  ASSERT_OK_AND_ASSIGN(const ModelFolder model,
                       ModelFolder::Open(tandem::testing::TestData("models/tinystories-656k")));
  ASSERT_OK_AND_ASSIGN(const TensorView embedding, model.Find("model.embed_tokens.weight"));
  EXPECT_EQ(embedding.name, "lm_head.weight");
  EXPECT_THAT(embedding.shape, ElementsAre(2048, 128));
  EXPECT_THAT(model.names(), Not(::testing::Contains("model.embed_tokens.weight")));
  EXPECT_TRUE(model.HasTokenizer());
}

TEST(ModelConfig, UnitesTheEndIdsOfBothFiles) {
  TemporaryFolder folder;
  folder.Write("config.json", R"({"eos_token_id": 9})");
  folder.Write("generation_config.json", R"({"eos_token_id": [9, 3]})");
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, ReadModelConfig(folder.path()));
  EXPECT_THAT(config.eos_token_ids, ElementsAre(3, 9));
}

TEST(ModelConfig, AllowsAModelWithoutEndIds) {
  TemporaryFolder folder;
  folder.Write("config.json", R"({"eos_token_id": null})");
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, ReadModelConfig(folder.path()));
  EXPECT_THAT(config.eos_token_ids, ElementsAre());
}

TEST(ModelConfig, NamesTheFileAndFieldOfABadEndId) {
  TemporaryFolder folder;
  folder.Write("config.json", "{}");
  for (const char* value : {"\"</s>\"", "[1, \"2\"]", "-1", "1.5"}) {
    folder.Write("generation_config.json", std::string("{\"eos_token_id\": ") + value + "}");
    EXPECT_THAT(
        ReadModelConfig(folder.path()),
        StatusIs(kInvalid, HasSubstr((folder / "generation_config.json") + ": eos_token_id: ")));
  }
}

}  // namespace
}  // namespace tandem::io
