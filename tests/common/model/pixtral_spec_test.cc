// Mistral 3 with Pixtral's tower, in the forms of config.json that there are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/model/model_spec.h"
#include "common/model/parameter_table.h"
#include "common/model/stored_layout.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The form of the Hub: Mistral-Small-3.1-24B's, smaller.
json Mistral3Config() {
  return json::parse(R"({
    "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3",
    "image_token_index": 10, "multimodal_projector_bias": false, "projector_hidden_act": "gelu",
    "spatial_merge_size": 2, "vision_feature_layer": -1,
    "text_config": {
      "attention_dropout": 0.0, "head_dim": 8, "hidden_act": "silu", "hidden_size": 24,
      "initializer_range": 0.02, "intermediate_size": 20, "max_position_embeddings": 256,
      "model_type": "mistral", "num_attention_heads": 2, "num_hidden_layers": 2,
      "num_key_value_heads": 1, "rms_norm_eps": 1e-05, "rope_theta": 1000000000.0,
      "sliding_window": null, "vocab_size": 41},
    "vision_config": {
      "attention_dropout": 0.0, "head_dim": 8, "hidden_act": "silu", "hidden_size": 16,
      "image_size": 56, "intermediate_size": 20, "model_type": "pixtral",
      "num_attention_heads": 2, "num_channels": 3, "num_hidden_layers": 2, "patch_size": 14,
      "rope_theta": 5000.0}})");
}

std::string Mistral3ErrorOf(const json& config) {
  const absl::StatusOr<ModelSpec> spec = ParseModelSpec(config, "config.json");
  return spec.ok() ? "" : std::string(spec.status().message());
}

TEST(PixtralSpec, IsReadInBothFormsOfAConfig) {
  json newer = Mistral3Config();
  newer["vision_config"].erase("rope_theta");
  newer["vision_config"]["rope_parameters"] = {{"rope_type", "axial"}, {"rope_theta", 5000.0}};
  newer["text_config"].erase("rope_theta");
  newer["text_config"]["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e9}};
  for (const json& config : {Mistral3Config(), newer}) {
    ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(config, "config.json"));
    EXPECT_EQ(spec.hidden_size, 24);
    EXPECT_EQ(spec.ropes.front().theta, 1e9);
    EXPECT_TRUE(spec.ropes.front().sections.empty());
    EXPECT_EQ(spec.layers.front().attention.window, 0);
    ASSERT_TRUE(spec.vision.has_value());
    const VisionSpec& vision = *spec.vision;
    EXPECT_EQ(vision.patch_elements(), 3 * 14 * 14);
    EXPECT_EQ(vision.rope.theta, 5000);
    EXPECT_TRUE(vision.columns_between_rows);
    EXPECT_EQ(vision.first_norm->eps, 1e-5);
    EXPECT_EQ(vision.merger_norm->eps, 1e-5);
    EXPECT_FALSE(vision.merger_bias);
    EXPECT_EQ(vision.image_token_id, 10);
    EXPECT_EQ(vision.video_token_id, -1);
    EXPECT_FALSE(vision.layers.front().attention.qkv_bias);
    EXPECT_TRUE(vision.layers.front().feed_forward.gated);
    EXPECT_EQ(vision.layers.front().feed_forward.activation, Activation::kSilu);
  }
}

TEST(PixtralSpec, TheLanguageModelIsMistralsOrMinistrals) {
  json config = Mistral3Config();
  json& text = config["text_config"];
  text["model_type"] = "ministral3";
  for (const char* key : {"head_dim", "rms_norm_eps", "rope_theta", "sliding_window"}) {
    text.erase(key);
  }
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(config, "config.json"));
  // The defaults of its class.
  EXPECT_EQ(spec.layers.front().attention.head_dim, 128);
  EXPECT_EQ(spec.vision->merger_norm->eps, 1e-5);
  ASSERT_TRUE(spec.ropes.front().yarn.has_value());
  EXPECT_EQ(spec.ropes.front().yarn->factor, 16);
  ASSERT_TRUE(spec.layers.front().attention.query_position_scale.has_value());
  text["model_type"] = "llama";
  EXPECT_THAT(Mistral3ErrorOf(config), HasSubstr("text_config: \"model_type\""));
}

// A file without the key is older than transformers 5, which reads the outer one alone.
TEST(PixtralSpec, TheOuterFlagTiesTheHead) {
  const auto is_tied = [](const json& outer, const json& inner) {
    json config = Mistral3Config();
    if (!outer.is_null()) config["tie_word_embeddings"] = outer;
    if (!inner.is_null()) config["text_config"]["tie_word_embeddings"] = inner;
    return ParseModelSpec(config, "config.json").value().tie_word_embeddings;
  };
  EXPECT_FALSE(is_tied(nullptr, nullptr));
  EXPECT_TRUE(is_tied(nullptr, true));
  EXPECT_TRUE(is_tied(true, false));
  EXPECT_FALSE(is_tied(false, true));
}

TEST(PixtralSpec, TensorsAreThoseOfTheHub) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(Mistral3Config(), "config.json"));
  ASSERT_OK_AND_ASSIGN(const StoredLayout layout,
                       StoredLayout::Create(ParameterTable(spec), /*folder=*/nullptr));
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const StoredTensor& tensor : layout.tensors()) {
    shapes[tensor.name] = tensor.shape;
    EXPECT_TRUE(tensor.name.rfind("language_model.", 0) == 0 ||
                tensor.name.rfind("vision_tower.", 0) == 0 ||
                tensor.name.rfind("multi_modal_projector.", 0) == 0)
        << tensor.name;
  }
  EXPECT_EQ(shapes.size(), 3U + 2 * 9 + 2 + 2 * 9 + 4);
  EXPECT_THAT(shapes["language_model.lm_head.weight"], ElementsAre(41, 24));
  EXPECT_THAT(shapes["language_model.model.layers.1.mlp.down_proj.weight"], ElementsAre(24, 20));
  EXPECT_THAT(shapes["vision_tower.patch_conv.weight"], ElementsAre(16, 3, 14, 14));
  EXPECT_THAT(shapes["vision_tower.transformer.layers.1.feed_forward.gate_proj.weight"],
              ElementsAre(20, 16));
  EXPECT_THAT(shapes["multi_modal_projector.patch_merger.merging_layer.weight"],
              ElementsAre(16, 64));
  EXPECT_THAT(shapes["multi_modal_projector.linear_1.weight"], ElementsAre(24, 16));
  EXPECT_THAT(shapes["multi_modal_projector.linear_2.weight"], ElementsAre(24, 24));
}

TEST(PixtralSpec, NamesKeysThatDoNotFit) {
  const auto error_with = [](const char* key, const json& value) {
    json config = Mistral3Config();
    config[key] = value;
    return Mistral3ErrorOf(config);
  };
  EXPECT_THAT(error_with("vision_feature_layer", -2), HasSubstr("\"vision_feature_layer\""));
  EXPECT_THAT(error_with("vision_feature_layer", {-1, -2}), HasSubstr("\"vision_feature_layer\""));
  EXPECT_THAT(error_with("projector_hidden_act", "relu"), HasSubstr("\"projector_hidden_act\""));
  EXPECT_THAT(error_with("spatial_merge_size", 0), HasSubstr("\"spatial_merge_size\""));
  EXPECT_THAT(error_with("image_token_index", 41), HasSubstr("\"image_token_index\""));
  EXPECT_THAT(error_with("vision_config", nullptr), HasSubstr("\"vision_config\""));
  const auto error_of_tower = [](const char* key, const json& value) {
    json config = Mistral3Config();
    config["vision_config"][key] = value;
    return Mistral3ErrorOf(config);
  };
  EXPECT_THAT(error_of_tower("model_type", "siglip"), HasSubstr("\"model_type\""));
  EXPECT_THAT(error_of_tower("num_channels", 1), HasSubstr("\"num_channels\""));
  EXPECT_THAT(error_of_tower("num_attention_heads", 3), HasSubstr("\"num_attention_heads\""));
  EXPECT_THAT(error_of_tower("hidden_act", "relu"), HasSubstr("gelu, silu"));
  EXPECT_THAT(error_of_tower("patch_size", {14, 14}), HasSubstr("\"patch_size\""));
  EXPECT_THAT(error_of_tower("rope_parameters", {{"rope_type", "yarn"}}), HasSubstr("axial"));
  json config = Mistral3Config();
  config["text_config"]["rope_scaling"] = {{"type", "dynamic"}, {"factor", 2.0}};
  EXPECT_THAT(Mistral3ErrorOf(config), HasSubstr("dynamic"));
}

}  // namespace
}  // namespace tandem::model
