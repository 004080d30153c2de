// Gemma 3 with images: config.json in the forms of the Hub and of transformers 5, the names of its tensors,
// and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/model/image_places.h"
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

// gemma-3-4b-it's, which leaves most of the language model's sizes to its class.
json GemmaHubConfig() {
  return json::parse(R"({
    "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
    "eoi_token_index": 256000, "eos_token_id": [1, 106], "image_token_index": 262144,
    "initializer_range": 0.02, "mm_tokens_per_image": 256, "model_type": "gemma3",
    "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
                    "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                    "sliding_window": 1024},
    "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
    "vision_config": {"hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
                      "model_type": "siglip_vision_model", "num_attention_heads": 16,
                      "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": false}})");
}

TEST(GemmaImagesSpec, IsThatOfTheHub) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(GemmaHubConfig(), "config.json"));
  EXPECT_EQ(spec.architecture, "Gemma3ForConditionalGeneration");
  EXPECT_EQ(spec.vocab_size, 262208);
  EXPECT_EQ(spec.hidden_size, 2560);
  EXPECT_EQ(spec.num_layers(), 34);
  EXPECT_EQ(spec.max_position_embeddings, 131072);
  EXPECT_TRUE(spec.tie_word_embeddings);
  EXPECT_THAT(spec.eos_token_ids, ElementsAre(1, 106));
  EXPECT_EQ(spec.bos_token_id, 2);
  const AttentionSpec& windowed = spec.layers[0].attention;
  EXPECT_EQ(windowed.num_heads, 8);
  EXPECT_EQ(windowed.num_kv_heads, 4);
  EXPECT_EQ(windowed.head_dim, 256);
  EXPECT_EQ(windowed.window, Window(1024));
  EXPECT_EQ(spec.layers[5].attention.window, Window(0));
  EXPECT_EQ(spec.ropes[windowed.rope].theta, 10000);
  EXPECT_EQ(spec.ropes[windowed.rope].linear_factor, 1);
  EXPECT_EQ(spec.ropes[spec.layers[5].attention.rope].theta, 1000000);
  EXPECT_EQ(spec.ropes[spec.layers[5].attention.rope].linear_factor, 8);
  const VisionSpec& vision = *spec.vision;
  EXPECT_EQ(vision.tiles->side, 64);
  EXPECT_EQ(vision.tiles->num_read_layers, 27);
  EXPECT_EQ(vision.merge_size, 4);
  EXPECT_EQ(vision.rows_per_tile(), 256);
  EXPECT_EQ(vision.image_token_id, 262144);
  EXPECT_TRUE(vision.images_see_ahead);
  EXPECT_TRUE(vision.has_text_positions);

  ASSERT_OK_AND_ASSIGN(const StoredLayout layout,
                       StoredLayout::Create(ParameterTable(spec), /*folder=*/nullptr));
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const StoredTensor& tensor : layout.tensors()) shapes[tensor.name] = tensor.shape;
  EXPECT_THAT(shapes["multi_modal_projector.mm_input_projection_weight"], ElementsAre(1152, 2560));
  EXPECT_THAT(shapes["multi_modal_projector.mm_soft_emb_norm.weight"], ElementsAre(1152));
  EXPECT_THAT(shapes["vision_tower.post_layernorm.bias"], ElementsAre(1152));
  EXPECT_THAT(shapes["language_model.model.layers.33.pre_feedforward_layernorm.weight"],
              ElementsAre(2560));
  EXPECT_THAT(shapes["language_model.model.layers.33.self_attn.q_norm.weight"], ElementsAre(256));
  EXPECT_EQ(shapes.count("language_model.lm_head.weight"), 0U);
  EXPECT_EQ(shapes.count("vision_tower.head.probe"), 0U);
  for (const auto& [name, shape] : shapes) {
    EXPECT_TRUE(name.rfind("language_model.", 0) == 0 || name.rfind("vision_tower.", 0) == 0 ||
                name.rfind("multi_modal_projector.", 0) == 0)
        << name;
  }
}

TEST(GemmaImagesSpec, TakesTheDefaultsOfItsClass) {
  json config = GemmaHubConfig();
  config.erase("mm_tokens_per_image");
  config.erase("image_token_index");
  config.erase("eos_token_id");
  config["text_config"] = {{"model_type", "gemma3_text"}};
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(config, "config.json"));
  EXPECT_EQ(spec.hidden_size, 2304);
  EXPECT_EQ(spec.num_layers(), 26);
  EXPECT_EQ(spec.layers[0].feed_forward.intermediate_size, 9216);
  EXPECT_EQ(spec.layers[0].attention.window, Window(4096));
  EXPECT_THAT(spec.eos_token_ids, ElementsAre(1));
  EXPECT_EQ(spec.vision->rows_per_tile(), 256);
}

TEST(GemmaImagesSpec, RefusesByName) {
  json config = GemmaHubConfig();
  config["mm_tokens_per_image"] = 250;
  EXPECT_THAT(RefusalOf(config), AllOf(HasSubstr("mm_tokens_per_image"), HasSubstr("divides 64")));
  config["mm_tokens_per_image"] = 9;
  EXPECT_THAT(RefusalOf(config), HasSubstr("divides 64"));
  config = GemmaHubConfig();
  config["vision_config"]["model_type"] = "clip_vision_model";
  EXPECT_THAT(RefusalOf(config), AllOf(HasSubstr("vision_config"), HasSubstr("model_type")));
  config = GemmaHubConfig();
  config["text_config"]["model_type"] = "llama";
  EXPECT_THAT(RefusalOf(config), AllOf(HasSubstr("text_config"), HasSubstr("gemma3_text")));
  config["text_config"] = 3;
  EXPECT_THAT(RefusalOf(config), HasSubstr("text_config"));
  config = GemmaHubConfig();
  config["text_config"]["use_bidirectional_attention"] = true;
  EXPECT_THAT(RefusalOf(config), HasSubstr("use_bidirectional_attention"));
  // transformers' class does not apply it.
  config = GemmaHubConfig();
  config["text_config"]["final_logit_softcapping"] = 30.0;
  EXPECT_THAT(RefusalOf(config), HasSubstr("final_logit_softcapping"));
}

// Images of two rows, two tiles of one patch.
std::string GemmaPlacingErrorOf(const std::vector<int64_t>& ids, size_t num_images) {
  VisionSpec spec;
  spec.tiles.emplace().side = 1;
  spec.merge_size = 1;
  spec.image_token_id = 9;
  spec.video_token_id = -1;
  spec.has_text_positions = true;
  spec.images_see_ahead = true;
  const std::vector<ImageGrid> grids(num_images, ImageGrid{2, 1});
  return std::string(PlaceImages(spec, ids, grids).status().message());
}

TEST(GemmaImagesSpec, ImagesThatSeeThemselvesHaveTextBehindThem) {
  EXPECT_EQ(GemmaPlacingErrorOf({9, 9, 1, 9, 9, 1}, 2), "");
  EXPECT_THAT(GemmaPlacingErrorOf({1, 9, 9, 9, 9, 1}, 2),
              AllOf(HasSubstr("images[0]: expected a token of text"), HasSubstr("token 3")));
  EXPECT_THAT(GemmaPlacingErrorOf({1, 9, 9}, 1), HasSubstr("images[0]: expected a token of text"));
}

TEST(SeenEnds, AreThoseOfTheImage) {
  EXPECT_THAT(SeenEnds({3, 4, 5, 8, 9}, 2, 11), ElementsAre(3, 6, 6, 6, 7, 8, 10, 10, 11));
  EXPECT_THAT(SeenEnds({}, 4, 6), ElementsAre(5, 6));
}

TEST(ImagePlaces, NameTheRunThatACutDivides) {
  const ImagePlaces places{.tokens = {2, 3, 4, 8, 9}};
  const auto run = [&](int64_t token) {
    const ImageRun found = places.RunAround(token);
    return std::vector<int64_t>{found.begin, found.end};
  };
  for (const int64_t token : {0, 2, 5, 6, 8, 10, 20}) EXPECT_THAT(run(token), ElementsAre(0, 0));
  EXPECT_THAT(run(3), ElementsAre(2, 5));
  EXPECT_THAT(run(4), ElementsAre(2, 5));
  EXPECT_THAT(run(9), ElementsAre(8, 10));
}

}  // namespace
}  // namespace tandem::model
