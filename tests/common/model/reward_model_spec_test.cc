#include "common/model/reward_model_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/io/safetensors_writer.h"
#include "common/model/parameter_table.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"

namespace tandem::model {
namespace {

using nlohmann::json;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TinyModelConfig;
using ::testing::AllOf;
using ::testing::HasSubstr;

json RewardConfig(const std::string& architecture = "LlamaForSequenceClassification") {
  json config = TinyModelConfig();
  config["architectures"] = {architecture};
  config["id2label"] = {{"0", "LABEL_0"}};
  config["pad_token_id"] = 1;
  return config;
}

TEST(RewardModelSpec, IsItsFamilysWithAHeadOfOneRow) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseRewardModelSpec(RewardConfig(), "m/config.json"));
  EXPECT_EQ(spec.architecture, "LlamaForSequenceClassification");
  EXPECT_TRUE(spec.value_head);
  EXPECT_EQ(spec.pad_token_id, 1);
  const ParameterTable table(spec);
  ASSERT_GE(table.value_head(), 0);
  EXPECT_EQ(table.parameter(table.value_head()).segments[0].name, "score.weight");
  EXPECT_EQ(table.value_head_bias(), -1);
  EXPECT_EQ(table.lm_head(), -1);
}

TEST(RewardModelSpec, NamesThatAreReadAsTheirLanguageModels) {
  for (const char* name : {"LlamaForSequenceClassification", "Qwen2ForSequenceClassification",
                           "Qwen3ForSequenceClassification"}) {
    EXPECT_TRUE(IsRewardModel(RewardConfig(name))) << name;
    EXPECT_TRUE(IsRewardArchitecture(name));
    EXPECT_OK(ParseRewardModelSpec(RewardConfig(name), "m")) << name;
  }
  EXPECT_FALSE(IsRewardModel(TinyModelConfig()));
  EXPECT_FALSE(IsRewardModel(json::array()));
  EXPECT_FALSE(IsRewardModel({{"architectures", {1}}}));
}

TEST(RewardModelSpec, RefusesOtherModels) {
  EXPECT_THAT(
      ParseRewardModelSpec(TinyModelConfig(), "m/config.json"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("m/config.json: architectures"), HasSubstr("LlamaForCausalLM"))));
  EXPECT_THAT(ParseRewardModelSpec(RewardConfig("BertForSequenceClassification"), "m"),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("architectures")));
  EXPECT_THAT(ParseRewardModelSpec(json(3), "m"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("m:")));
}

TEST(RewardModelSpec, RefusesSeveralLabels) {
  json config = RewardConfig();
  config["id2label"]["1"] = "LABEL_1";
  EXPECT_THAT(ParseRewardModelSpec(config, "m/config.json"),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("m/config.json: id2label"), HasSubstr("found 2"))));
}

// A folder with score.weight of `labels` rows; 0: without it.
absl::StatusOr<io::ModelFolder> FolderWith(const testing::TempFolder& folder, int64_t labels) {
  folder.Write("config.json", RewardConfig().dump());
  const std::vector<float> values(32 * std::max<int64_t>(1, labels));
  const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
  const std::vector<int64_t> shape = {std::max<int64_t>(1, labels), 32};
  const std::string name = labels > 0 ? "score.weight" : "lm_head.weight";
  ASSIGN_OR_RETURN(auto writer, io::SafetensorsWriter::Create(
                                    folder / "model.safetensors",
                                    {{.name = name, .dtype = io::DType::kF32, .shape = shape}}));
  RETURN_IF_ERROR(writer.Append(name, {bytes, values.size() * sizeof(float)}));
  RETURN_IF_ERROR(writer.Commit());
  return io::ModelFolder::Open(folder.path());
}

TEST(RewardModelSpec, TheFoldersHeadHasOneRow) {
  for (const auto& [labels, code] :
       {std::pair(0, absl::StatusCode::kFailedPrecondition), std::pair(1, absl::StatusCode::kOk),
        std::pair(2, absl::StatusCode::kUnimplemented)}) {
    const testing::TempFolder folder;
    ASSERT_OK_AND_ASSIGN(const io::ModelFolder opened, FolderWith(folder, labels));
    EXPECT_EQ(CheckRewardHead(opened).code(), code) << labels;
  }
}

TEST(RewardModelSpec, TheLastTokenThatIsNoPaddingCounts) {
  EXPECT_EQ(NumClassifiedTokens({5, 6, 7}, std::nullopt), 3);
  EXPECT_EQ(NumClassifiedTokens({5, 6, 0}, std::nullopt), 3);
  EXPECT_EQ(NumClassifiedTokens({5, 6, 0, 0}, 0), 2);
  EXPECT_EQ(NumClassifiedTokens({5, 0, 6}, 0), 3);
  EXPECT_EQ(NumClassifiedTokens({0, 0}, 0), 1);
  EXPECT_EQ(NumClassifiedTokens({}, 0), 0);
}

}  // namespace
}  // namespace tandem::model
