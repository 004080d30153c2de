// Models with a vision tower, in both forms of config.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/model/model_spec.h"
#include "common/model/parallel_fit.h"
#include "common/model/parameter_table.h"
#include "common/model/stored_layout.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The form of the Hub: Qwen2-VL-2B's, smaller.
json HubConfig() {
  return json::parse(R"({
    "architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl",
    "bos_token_id": 1, "eos_token_id": 2, "vision_start_token_id": 38, "vision_end_token_id": 39,
    "vision_token_id": 40, "image_token_id": 36, "video_token_id": 37, "hidden_act": "silu",
    "hidden_size": 16, "initializer_range": 0.02, "intermediate_size": 20,
    "max_position_embeddings": 256, "max_window_layers": 28, "num_attention_heads": 2,
    "num_hidden_layers": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true,
    "use_sliding_window": false, "vocab_size": 41,
    "vision_config": {"depth": 2, "embed_dim": 16, "mlp_ratio": 2, "num_heads": 2, "in_chans": 3,
                      "hidden_size": 16, "patch_size": 4, "spatial_merge_size": 2,
                      "spatial_patch_size": 4, "temporal_patch_size": 2},
    "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}})");
}

// The same as transformers 5 writes it.
json NestedConfig() {
  json config = HubConfig();
  json text = json::object();
  for (const char* key :
       {"bos_token_id", "eos_token_id", "hidden_act", "hidden_size", "initializer_range",
        "intermediate_size", "max_position_embeddings", "max_window_layers", "num_attention_heads",
        "num_hidden_layers", "num_key_value_heads", "rms_norm_eps", "use_sliding_window",
        "vocab_size"}) {
    text[key] = config[key];
    config.erase(key);
  }
  for (const char* key : {"rope_theta", "rope_scaling", "sliding_window"}) config.erase(key);
  text["model_type"] = "qwen2_vl_text";
  text["sliding_window"] = nullptr;
  text["layer_types"] = {"full_attention", "full_attention"};
  text["rope_parameters"] = {
      {"rope_type", "default"}, {"rope_theta", 1000000.0}, {"mrope_section", {1, 1, 2}}};
  config["text_config"] = text;
  return config;
}

// Qwen3-VL-30B-A3B's, smaller, with keys that the language model does not read.
json Qwen3Config() {
  return json::parse(R"({
    "architectures": ["Qwen3VLMoeForConditionalGeneration"], "model_type": "qwen3_vl_moe",
    "image_token_id": 36, "video_token_id": 37, "tie_word_embeddings": false,
    "vision_start_token_id": 38, "vision_end_token_id": 39,
    "text_config": {
      "attention_bias": false, "bos_token_id": 1, "decoder_sparse_step": 1, "dtype": "bfloat16",
      "eos_token_id": 2, "head_dim": 16, "hidden_act": "silu", "hidden_size": 24,
      "intermediate_size": 20, "max_position_embeddings": 256, "mlp_only_layers": [],
      "model_type": "qwen3_vl_moe_text", "moe_intermediate_size": 6, "norm_topk_prob": true,
      "num_attention_heads": 2, "num_experts": 4, "num_experts_per_tok": 2,
      "num_hidden_layers": 3, "num_key_value_heads": 1, "rms_norm_eps": 1e-06,
      "rope_scaling": {"mrope_interleaved": true, "mrope_section": [4, 2, 2],
                       "rope_type": "default"},
      "rope_theta": 5000000, "tie_word_embeddings": true, "vocab_size": 41},
    "vision_config": {
      "deepstack_visual_indexes": [1, 2], "depth": 4, "hidden_act": "gelu_pytorch_tanh",
      "hidden_size": 16, "in_channels": 3, "intermediate_size": 20,
      "model_type": "qwen3_vl_moe", "num_heads": 2, "num_position_embeddings": 36,
      "out_hidden_size": 24, "patch_size": 4, "spatial_merge_size": 2,
      "temporal_patch_size": 2}})");
}

std::string ErrorOf(const json& config) {
  const absl::StatusOr<ModelSpec> spec = ParseModelSpec(config, "config.json");
  return spec.ok() ? "" : std::string(spec.status().message());
}

TEST(VisionSpec, BothFormsOfAConfigAreTheSameModel) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec hub, ParseModelSpec(HubConfig(), "config.json"));
  ASSERT_OK_AND_ASSIGN(const ModelSpec nested, ParseModelSpec(NestedConfig(), "config.json"));
  for (const ModelSpec* spec : {&hub, &nested}) {
    EXPECT_EQ(spec->hidden_size, 16);
    EXPECT_TRUE(spec->tie_word_embeddings);
    EXPECT_THAT(spec->eos_token_ids, ElementsAre(2));
    ASSERT_TRUE(spec->vision.has_value());
    EXPECT_EQ(spec->vision->patch_elements(), 3 * 2 * 4 * 4);
    EXPECT_EQ(spec->vision->image_token_id, 36);
    EXPECT_EQ(spec->vision->layers.front().feed_forward.intermediate_size, 32);
  }
  EXPECT_EQ(hub.ropes, nested.ropes);
  EXPECT_THAT(hub.ropes.front().sections, ElementsAre(1, 1, 2));
  EXPECT_EQ(hub.layers, nested.layers);
  EXPECT_EQ(hub.vision->layers, nested.vision->layers);
  EXPECT_EQ(hub.stored_rules, nested.stored_rules);
}

TEST(VisionSpec, Qwen3sTowerHasPositionsAndAddsToLayers) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(Qwen3Config(), "config.json"));
  // Those of the language model do not count.
  EXPECT_FALSE(spec.tie_word_embeddings);
  EXPECT_EQ(spec.layers[2].experts->routing.top_k, 2);
  EXPECT_TRUE(spec.layers[0].attention.qk_norm.has_value());
  EXPECT_EQ(spec.ropes.front().theta, 5000000);
  EXPECT_THAT(spec.ropes.front().sections, ElementsAre(4, 2, 2));
  EXPECT_TRUE(spec.ropes.front().sections_alternate);
  ASSERT_TRUE(spec.vision.has_value());
  EXPECT_EQ(spec.vision->position_grid, 6);
  EXPECT_THAT(spec.vision->deepstack_layers, ElementsAre(1, 2));
  EXPECT_EQ(spec.vision->num_row_parts(), 3);
  EXPECT_EQ(spec.vision->layers.front().feed_forward.activation, Activation::kGeluTanh);

  json tied = Qwen3Config();
  tied["tie_word_embeddings"] = true;
  tied["text_config"]["tie_word_embeddings"] = false;
  ASSERT_OK_AND_ASSIGN(const ModelSpec of_tied, ParseModelSpec(tied, "config.json"));
  EXPECT_TRUE(of_tied.tie_word_embeddings);
}

// Without a folder, an export has the Hub's names.
TEST(VisionSpec, Qwen3sTensorsAreThoseOfTheHub) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(Qwen3Config(), "config.json"));
  ASSERT_OK_AND_ASSIGN(const StoredLayout layout,
                       StoredLayout::Create(ParameterTable(spec), /*folder=*/nullptr));
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const StoredTensor& tensor : layout.tensors()) {
    shapes[tensor.name] = tensor.shape;
    EXPECT_TRUE(tensor.name == "lm_head.weight" ||
                tensor.name.rfind("model.language_model.", 0) == 0 ||
                tensor.name.rfind("model.visual.", 0) == 0)
        << tensor.name;
  }
  EXPECT_THAT(shapes["model.language_model.layers.0.mlp.experts.gate_up_proj"],
              ElementsAre(4, 24, 12));
  EXPECT_THAT(shapes["model.language_model.layers.2.mlp.experts.down_proj"], ElementsAre(4, 6, 24));
  EXPECT_THAT(shapes["model.visual.patch_embed.proj.weight"], ElementsAre(16, 3, 2, 4, 4));
  EXPECT_THAT(shapes["model.visual.pos_embed.weight"], ElementsAre(36, 16));
  EXPECT_THAT(shapes["model.visual.blocks.3.attn.qkv.bias"], ElementsAre(48));
  EXPECT_THAT(shapes["model.visual.deepstack_merger_list.1.norm.weight"], ElementsAre(64));
  EXPECT_THAT(shapes["model.visual.merger.linear_fc2.weight"], ElementsAre(24, 64));
}

TEST(VisionSpec, NamesKeysOfQwen3ThatDoNotFit) {
  const auto error_with = [](const char* key, const json& value) {
    json config = Qwen3Config();
    config["vision_config"][key] = value;
    return ErrorOf(config);
  };
  EXPECT_THAT(error_with("deepstack_visual_indexes", {2, 1}), HasSubstr("in ascending order"));
  EXPECT_THAT(error_with("deepstack_visual_indexes", {1, 4}), HasSubstr("from 0 to 3"));
  EXPECT_THAT(error_with("deepstack_visual_indexes", {0, 1, 2, 3}),
              HasSubstr("\"deepstack_visual_indexes\" must be at most 3 layers"));
  EXPECT_THAT(error_with("num_position_embeddings", 35), HasSubstr("a square number"));
  EXPECT_THAT(error_with("out_hidden_size", 16), HasSubstr("\"out_hidden_size\""));
  EXPECT_THAT(error_with("hidden_act", "silu"), HasSubstr("gelu_pytorch_tanh"));
  EXPECT_THAT(error_with("rope_parameters", {{"rope_type", "yarn"}}), HasSubstr("axial"));
  const auto error_of_rope = [](const char* key, const json& value) {
    json config = Qwen3Config();
    config["text_config"]["rope_scaling"][key] = value;
    return ErrorOf(config);
  };
  EXPECT_THAT(error_of_rope("mrope_interleaved", false), HasSubstr("\"mrope_interleaved\""));
  EXPECT_THAT(error_of_rope("mrope_section", {2, 2, 4}), HasSubstr("each third of 8 pairs"));
  EXPECT_THAT(error_of_rope("mrope_section", {2, 2, 2}), HasSubstr("add up to the 8 pairs"));
}

TEST(VisionSpec, ACriticIsMadeOfALanguageModel) {
  const absl::StatusOr<ModelSpec> spec = ParseValueModelSpec(HubConfig(), "config.json");
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(spec.status().message(),
              HasSubstr("Qwen2VLForConditionalGeneration has a vision tower"));
}

TEST(VisionSpec, BothServicesComputeATowerOnEveryDevice) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(HubConfig(), "config.json"));
  for (const char* device : {"", "auto", "cpu", "cuda:1"}) {
    EXPECT_OK(CheckRolloutDevice(spec, device));
  }
  for (const bool on_gpu : {false, true}) EXPECT_OK(CheckTrainerDevice(spec, on_gpu));
}

TEST(VisionSpec, NamesKeysThatDoNotFit) {
  json config = HubConfig();
  config["vision_config"]["hidden_size"] = 24;
  EXPECT_THAT(ErrorOf(config), HasSubstr("vision_config: \"hidden_size\""));
  config = HubConfig();
  config["vision_config"]["num_heads"] = 3;
  EXPECT_THAT(ErrorOf(config), HasSubstr("\"num_heads\""));
  config = HubConfig();
  config["vision_config"]["hidden_act"] = "relu";
  EXPECT_THAT(ErrorOf(config), HasSubstr("quick_gelu"));
  config = HubConfig();
  config["vision_config"]["in_chans"] = 1;
  EXPECT_THAT(ErrorOf(config), HasSubstr("\"in_chans\""));
  config = HubConfig();
  config["rope_scaling"]["mrope_section"] = {1, 1, 1};
  EXPECT_THAT(ErrorOf(config), HasSubstr("add up to the 4 pairs of a head"));
  config = HubConfig();
  config["rope_scaling"] = {{"type", "dynamic"}, {"factor", 2.0}, {"mrope_section", {1, 1, 2}}};
  EXPECT_THAT(ErrorOf(config), HasSubstr("dynamic"));
  config = HubConfig();
  config.erase("vision_config");
  EXPECT_THAT(ErrorOf(config), HasSubstr("\"vision_config\""));
  config = HubConfig();
  config["image_token_id"] = 41;
  EXPECT_THAT(ErrorOf(config), HasSubstr("\"image_token_id\""));
}

// Every tensor-parallel rank has the whole tower.
TEST(VisionSpec, TheTowerIsNotSplit) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(HubConfig(), "config.json"));
  const ParameterTable whole(spec);
  const ParameterTable part(spec, {}, {.rank = 1, .size = 2});
  ASSERT_EQ(whole.parameters().size(), part.parameters().size());
  for (size_t i = 0; i < whole.parameters().size(); ++i) {
    const Parameter& parameter = part.parameter(static_cast<int>(i));
    if (parameter.group != "vision") continue;
    EXPECT_EQ(parameter.shape, whole.parameter(static_cast<int>(i)).shape) << parameter.name;
    EXPECT_FALSE(parameter.trainable) << parameter.name;
  }
}

}  // namespace
}  // namespace tandem::model
