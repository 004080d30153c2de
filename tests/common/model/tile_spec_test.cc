// Models whose vision towers see tiles: config.json in the forms of the Hub and of transformers 5, the names
// of their tensors, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/model/model_spec.h"
#include "common/model/parameter_table.h"
#include "common/model/stored_layout.h"
#include "tests/common/model/refusal_of_config.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// llava-1.5-7b-hf's, which leaves sizes to the language model's class.
json LlavaConfig() {
  return json::parse(R"({
    "architectures": ["LlavaForConditionalGeneration"], "ignore_index": -100,
    "image_token_index": 32000, "model_type": "llava", "pad_token_id": 32001,
    "projector_hidden_act": "gelu",
    "text_config": {"_name_or_path": "lmsys/vicuna-7b-v1.5", "architectures": ["LlamaForCausalLM"],
                    "max_position_embeddings": 4096, "model_type": "llama", "rms_norm_eps": 1e-05,
                    "torch_dtype": "float16", "vocab_size": 32064},
    "tie_word_embeddings": false, "torch_dtype": "float16",
    "vision_config": {"hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
                      "model_type": "clip_vision_model", "num_attention_heads": 16,
                      "num_hidden_layers": 24, "patch_size": 14, "projection_dim": 768,
                      "vocab_size": 32000},
    "vision_feature_layer": -2, "vision_feature_select_strategy": "default",
    "vocab_size": 32064})");
}

// InternVL3-1B-hf's.
json InternVlConfig() {
  return json::parse(R"({
    "architectures": ["InternVLForConditionalGeneration"], "downsample_ratio": 0.5,
    "image_seq_length": 256, "image_token_id": 151667, "model_type": "internvl",
    "projector_hidden_act": "gelu",
    "text_config": {"architectures": ["Qwen2ForCausalLM"], "bos_token_id": 151643,
                    "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896,
                    "intermediate_size": 4864, "max_position_embeddings": 32768,
                    "max_window_layers": 21, "model_type": "qwen2", "num_attention_heads": 14,
                    "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
                    "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": true,
                    "use_sliding_window": false, "vocab_size": 151674},
    "vision_config": {"attention_bias": true, "hidden_act": "gelu", "hidden_size": 1024,
                      "image_size": [448, 448], "intermediate_size": 4096,
                      "layer_norm_eps": 1e-06, "model_type": "internvl_vision",
                      "norm_type": "layer_norm", "num_attention_heads": 16, "num_channels": 3,
                      "num_hidden_layers": 24, "patch_size": [14, 14],
                      "use_absolute_position_embeddings": true, "use_mask_token": false,
                      "use_mean_pooling": true, "use_qk_norm": false},
    "vision_feature_layer": -1, "vision_feature_select_strategy": "default"})");
}

std::map<std::string, std::vector<int64_t>> ShapesOf(const ModelSpec& spec) {
  std::map<std::string, std::vector<int64_t>> shapes;
  const absl::StatusOr<StoredLayout> layout =
      StoredLayout::Create(ParameterTable(spec), /*folder=*/nullptr);
  EXPECT_OK(layout.status());
  if (!layout.ok()) return shapes;
  for (const StoredTensor& tensor : layout->tensors()) shapes[tensor.name] = tensor.shape;
  return shapes;
}

TEST(TileSpec, IsThatOfLlavaOnTheHub) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(LlavaConfig(), "config.json"));
  EXPECT_EQ(spec.architecture, "LlavaForConditionalGeneration");
  EXPECT_EQ(spec.vocab_size, 32064);
  EXPECT_EQ(spec.hidden_size, 4096);
  EXPECT_EQ(spec.num_layers(), 32);
  EXPECT_EQ(spec.layers.front().feed_forward.intermediate_size, 11008);
  EXPECT_THAT(spec.eos_token_ids, ElementsAre(2));
  EXPECT_TRUE(spec.ropes.front().sections.empty());
  EXPECT_TRUE(spec.vision->has_text_positions);
  const VisionSpec& vision = *spec.vision;
  EXPECT_EQ(vision.image_token_id, 32000);
  EXPECT_EQ(vision.num_layers(), 24);
  EXPECT_EQ(vision.tiles->side, 24);
  EXPECT_EQ(vision.tiles->num_read_layers, 23);
  EXPECT_EQ(vision.tiles->tokens(), 577);
  EXPECT_EQ(vision.rows_per_tile(), 576);
  EXPECT_EQ(vision.layers.front().feed_forward.activation, Activation::kQuickGelu);

  std::map<std::string, std::vector<int64_t>> shapes = ShapesOf(spec);
  EXPECT_THAT(shapes["language_model.model.layers.31.mlp.up_proj.weight"],
              ElementsAre(11008, 4096));
  EXPECT_THAT(shapes["language_model.lm_head.weight"], ElementsAre(32064, 4096));
  EXPECT_THAT(shapes["vision_tower.embeddings.class_embedding"], ElementsAre(1024));
  EXPECT_THAT(shapes["vision_tower.embeddings.patch_embedding.weight"],
              ElementsAre(1024, 3, 14, 14));
  EXPECT_THAT(shapes["vision_tower.embeddings.position_embedding.weight"], ElementsAre(577, 1024));
  EXPECT_THAT(shapes["vision_tower.encoder.layers.23.self_attn.out_proj.bias"], ElementsAre(1024));
  EXPECT_THAT(shapes["vision_tower.post_layernorm.bias"], ElementsAre(1024));
  EXPECT_THAT(shapes["multi_modal_projector.linear_1.weight"], ElementsAre(4096, 1024));
  for (const auto& [name, shape] : shapes) {
    EXPECT_TRUE(name.rfind("language_model.", 0) == 0 || name.rfind("vision_tower.", 0) == 0 ||
                name.rfind("multi_modal_projector.", 0) == 0)
        << name;
  }
}

TEST(TileSpec, IsThatOfInternVlOnTheHub) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(InternVlConfig(), "config.json"));
  EXPECT_TRUE(spec.tie_word_embeddings);
  EXPECT_TRUE(spec.layers.front().attention.qkv_bias);
  const VisionSpec& vision = *spec.vision;
  EXPECT_EQ(vision.image_token_id, 151667);
  EXPECT_EQ(vision.tiles->tokens(), 1025);
  EXPECT_EQ(vision.rows_per_tile(), 256);
  EXPECT_EQ(vision.tiles->num_read_layers, 24);
  EXPECT_TRUE(vision.layers.front().residual_scales);
  std::map<std::string, std::vector<int64_t>> shapes = ShapesOf(spec);
  EXPECT_THAT(shapes["vision_tower.embeddings.cls_token"], ElementsAre(1, 1, 1024));
  EXPECT_THAT(shapes["vision_tower.embeddings.position_embeddings"], ElementsAre(1, 1025, 1024));
  EXPECT_THAT(shapes["vision_tower.encoder.layer.23.lambda_2"], ElementsAre(1024));
  EXPECT_THAT(shapes["multi_modal_projector.layer_norm.weight"], ElementsAre(4096));
  EXPECT_THAT(shapes["multi_modal_projector.linear_1.weight"], ElementsAre(896, 4096));

  // Where the outer value is there, it alone counts.
  json untied = InternVlConfig();
  untied["tie_word_embeddings"] = false;
  ASSERT_OK_AND_ASSIGN(const ModelSpec of_untied, ParseModelSpec(untied, "config.json"));
  EXPECT_FALSE(of_untied.tie_word_embeddings);
}

TEST(TileSpec, NamesKeysOfLlavaThatDoNotFit) {
  const auto outer = [](const char* key, const json& value) {
    json config = LlavaConfig();
    config[key] = value;
    return RefusalOf(config);
  };
  const auto tower = [](const char* key, const json& value) {
    json config = LlavaConfig();
    config["vision_config"][key] = value;
    return RefusalOf(config);
  };
  EXPECT_THAT(outer("vision_feature_layer", {-2, -5}),
              AllOf(HasSubstr("\"vision_feature_layer\""), HasSubstr("one layer")));
  EXPECT_THAT(outer("vision_feature_layer", 25), HasSubstr("a layer from 1 to 24"));
  EXPECT_THAT(outer("vision_feature_layer", "last"), HasSubstr("\"vision_feature_layer\""));
  EXPECT_THAT(outer("vision_feature_select_strategy", "mean"), HasSubstr("default, full"));
  EXPECT_THAT(outer("projector_hidden_act", "xielu"), HasSubstr("\"projector_hidden_act\""));
  EXPECT_THAT(outer("image_token_index", 32064), HasSubstr("\"image_token_index\""));
  EXPECT_THAT(outer("text_config", nullptr), HasSubstr("\"text_config\""));
  EXPECT_THAT(outer("vision_config", 3), HasSubstr("\"vision_config\""));
  EXPECT_THAT(tower("model_type", "pixtral"), HasSubstr("clip_vision_model, siglip_vision_model"));
  EXPECT_THAT(tower("num_channels", 1), HasSubstr("\"num_channels\""));
  EXPECT_THAT(tower("image_size", {336, 224}), HasSubstr("two equal sides"));
  EXPECT_THAT(tower("patch_size", 400), HasSubstr("\"patch_size\""));
  EXPECT_THAT(tower("num_attention_heads", 15), HasSubstr("\"num_attention_heads\""));
  // A tower without class token has none to leave out.
  EXPECT_THAT(tower("model_type", "siglip_vision_model"), HasSubstr("full, for a tower without"));
  json gemma = LlavaConfig();
  gemma["text_config"]["model_type"] = "gemma";
  EXPECT_THAT(RefusalOf(gemma), AllOf(HasSubstr("text_config: \"model_type\""),
                                      HasSubstr("llama, mistral, qwen2, qwen3")));
  json dynamic = LlavaConfig();
  dynamic["text_config"]["rope_scaling"] = {{"type", "dynamic"}, {"factor", 2.0}};
  EXPECT_THAT(RefusalOf(dynamic), HasSubstr("with a vision tower"));
}

TEST(TileSpec, NamesKeysOfInternVlThatDoNotFit) {
  const auto tower = [](const char* key, const json& value) {
    json config = InternVlConfig();
    config["vision_config"][key] = value;
    return RefusalOf(config);
  };
  EXPECT_THAT(tower("norm_type", "batch_norm"), HasSubstr("layer_norm, rms_norm"));
  EXPECT_THAT(tower("use_mask_token", true), HasSubstr("\"use_mask_token\""));
  EXPECT_THAT(tower("use_mean_pooling", false), HasSubstr("\"use_mean_pooling\""));
  EXPECT_THAT(tower("use_absolute_position_embeddings", false),
              HasSubstr("\"use_absolute_position_embeddings\""));
  EXPECT_THAT(tower("image_size", {434, 434}), HasSubstr("into an even number"));
  json config = InternVlConfig();
  config["downsample_ratio"] = 0.25;
  EXPECT_THAT(RefusalOf(config), HasSubstr("\"downsample_ratio\""));
}

// What no pass reads is never trained.
TEST(TileSpec, LayersBehindTheOneThatIsReadStayFrozen) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(LlavaConfig(), "config.json"));
  const ParameterTable table(spec, {.trains_vision = true});
  int num_frozen = 0;
  for (const Parameter& parameter : table.parameters()) {
    const bool is_unread = parameter.name.rfind("visual.blocks.23.", 0) == 0 ||
                           parameter.name.rfind("visual.post_layernorm.", 0) == 0;
    EXPECT_EQ(parameter.trainable, !is_unread) << parameter.name;
    num_frozen += is_unread ? 1 : 0;
  }
  EXPECT_EQ(num_frozen, 14);
}

}  // namespace
}  // namespace tandem::model
