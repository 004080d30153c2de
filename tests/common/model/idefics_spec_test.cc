// Idefics 3 and SmolVLM: config.json in the forms of the Hub and of transformers 5, the names of their
// tensors, and what is refused.
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

// What counts of Idefics3-8B-Llama3's.
json Idefics3Config() {
  return json::parse(R"({
    "architectures": ["Idefics3ForConditionalGeneration"], "image_token_id": 128257,
    "model_type": "idefics3", "scale_factor": 2,
    "text_config": {"architectures": ["LlamaForCausalLM"], "bos_token_id": 128000,
                    "eos_token_id": [128001, 128008, 128009], "hidden_size": 4096,
                    "intermediate_size": 14336, "max_position_embeddings": 131072,
                    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
                    "num_key_value_heads": 8, "pad_token_id": 128002, "rms_norm_eps": 1e-05,
                    "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
                    "rope_theta": 500000.0, "tie_word_embeddings": false, "vocab_size": 128259},
    "tie_word_embeddings": false, "use_cache": true,
    "vision_config": {"hidden_size": 1152, "image_size": 364, "intermediate_size": 4304,
                      "model_type": "idefics3", "num_attention_heads": 16, "num_hidden_layers": 27,
                      "patch_size": 14}})");
}

TEST(IdeficsSpec, IsThatOfTheHub) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(Idefics3Config(), "config.json"));
  EXPECT_EQ(spec.hidden_size, 4096);
  EXPECT_FALSE(spec.tie_word_embeddings);
  const VisionSpec& vision = *spec.vision;
  EXPECT_EQ(vision.num_layers(), 27);
  EXPECT_EQ(vision.merge_size, 2);
  EXPECT_EQ(vision.image_token_id, 128257);
  EXPECT_EQ(vision.video_token_id, -1);
  EXPECT_TRUE(vision.has_text_positions);
  const TileSpec& tiles = *vision.tiles;
  EXPECT_EQ(tiles.side, 26);
  EXPECT_EQ(tiles.num_read_layers, 27);
  EXPECT_TRUE(tiles.text_between);
  EXPECT_TRUE(vision.last_norm.has_value());
  EXPECT_EQ(vision.rows_per_tile(), 169);
  EXPECT_EQ(vision.layers.front().feed_forward.activation, Activation::kGeluTanh);
}

TEST(IdeficsSpec, TensorsHaveTheNamesOfTransformers) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(Idefics3Config(), "config.json"));
  ASSERT_OK_AND_ASSIGN(const StoredLayout layout,
                       StoredLayout::Create(ParameterTable(spec), /*folder=*/nullptr));
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const StoredTensor& tensor : layout.tensors()) shapes[tensor.name] = tensor.shape;
  EXPECT_THAT(shapes["model.vision_model.embeddings.patch_embedding.weight"],
              ElementsAre(1152, 3, 14, 14));
  EXPECT_THAT(shapes["model.vision_model.embeddings.position_embedding.weight"],
              ElementsAre(676, 1152));
  EXPECT_THAT(shapes["model.vision_model.post_layernorm.bias"], ElementsAre(1152));
  EXPECT_THAT(shapes["model.vision_model.encoder.layers.26.self_attn.out_proj.weight"],
              ElementsAre(1152, 1152));
  EXPECT_THAT(shapes["model.connector.modality_projection.proj.weight"], ElementsAre(4096, 4608));
  EXPECT_THAT(shapes["model.text_model.layers.31.mlp.down_proj.weight"], ElementsAre(4096, 14336));
  EXPECT_THAT(shapes["model.text_model.embed_tokens.weight"], ElementsAre(128259, 4096));
  EXPECT_THAT(shapes["lm_head.weight"], ElementsAre(128259, 4096));
  // Three of the patches and the positions, 16 of each layer, the norm's two and the matrix; nine of each
  // layer of the language model, and three more.
  EXPECT_EQ(shapes.size(), 3U + 27 * 16 + 2 + 1 + 32 * 9 + 3);
}

// Only the outer value counts.
TEST(IdeficsSpec, IsTiedAsTransformersSays) {
  const auto is_tied = [](const json& outer, bool inner) {
    json config = Idefics3Config();
    config["tie_word_embeddings"] = outer;
    if (outer.is_null()) config.erase("tie_word_embeddings");
    config["text_config"]["tie_word_embeddings"] = inner;
    return ParseModelSpec(config, "config.json").value().tie_word_embeddings;
  };
  EXPECT_TRUE(is_tied(true, false));
  EXPECT_FALSE(is_tied(false, true));
  EXPECT_FALSE(is_tied(nullptr, true));
}

// As transformers' class does: a language model that is not named is Llama's.
TEST(IdeficsSpec, HasLlamasLanguageModelUnlessItNamesAnother) {
  json config = Idefics3Config();
  config["text_config"].erase("model_type");
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(config, "config.json"));
  EXPECT_FALSE(spec.layers.front().attention.qkv_bias);
}

TEST(IdeficsSpec, SmolVlmDiffersInItsName) {
  json config = Idefics3Config();
  config["architectures"] = {"SmolVLMForConditionalGeneration"};
  config["model_type"] = "smolvlm";
  config["vision_config"]["model_type"] = "smolvlm_vision";
  // Of 384 pixels in patches of 14 the last six are not seen.
  config["vision_config"]["image_size"] = 384;
  config["scale_factor"] = 3;
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(config, "config.json"));
  EXPECT_EQ(spec.vision->tiles->side, 27);
  EXPECT_EQ(spec.vision->rows_per_tile(), 81);
}

TEST(IdeficsSpec, NamesKeysThatDoNotFit) {
  const auto outer = [](const char* key, const json& value) {
    json config = Idefics3Config();
    config[key] = value;
    return RefusalOf(config);
  };
  const auto tower = [](const char* key, const json& value) {
    json config = Idefics3Config();
    config["vision_config"][key] = value;
    return RefusalOf(config);
  };
  EXPECT_THAT(outer("scale_factor", 3), AllOf(HasSubstr("\"scale_factor\""),
                                              HasSubstr("a divisor of 26, the patches of 14")));
  EXPECT_THAT(outer("scale_factor", 0), HasSubstr("\"scale_factor\""));
  EXPECT_THAT(outer("scale_factor", 17), HasSubstr("\"scale_factor\""));
  EXPECT_THAT(outer("image_token_id", 128259), HasSubstr("\"image_token_id\""));
  EXPECT_THAT(outer("text_config", nullptr), HasSubstr("\"text_config\""));
  EXPECT_THAT(outer("vision_config", nullptr), HasSubstr("\"vision_config\""));
  EXPECT_THAT(tower("patch_size", 400), HasSubstr("\"patch_size\""));
  EXPECT_THAT(tower("hidden_act", "xielu"), HasSubstr("\"hidden_act\""));
  EXPECT_THAT(tower("num_attention_heads", 17), HasSubstr("\"num_attention_heads\""));
  EXPECT_THAT(tower("num_channels", 1), HasSubstr("\"num_channels\""));
  json granite = Idefics3Config();
  granite["text_config"]["model_type"] = "granite";
  EXPECT_THAT(RefusalOf(granite), HasSubstr("text_config: \"model_type\""));
}

}  // namespace
}  // namespace tandem::model
