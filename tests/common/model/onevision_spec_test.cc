// LLaVA-OneVision: config.json as on the Hub, and what is refused; the forms in which a sequence shows images.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/model/image_forms.h"
#include "common/model/image_places.h"
#include "common/model/model_spec.h"
#include "common/model/packed_tiles.h"
#include "common/model/parameter_table.h"
#include "common/model/stored_layout.h"
#include "tests/common/model/refusal_of_config.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

using images::ImageForm;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// llava-onevision-qwen2-0.5b-ov-hf's.
json OnevisionConfig() {
  return json::parse(R"({
    "architectures": ["LlavaOnevisionForConditionalGeneration"], "ignore_index": -100,
    "image_grid_pinpoints": [[384, 384], [384, 768], [768, 384], [2304, 2304]],
    "image_token_index": 151646, "model_type": "llava_onevision", "projector_hidden_act": "gelu",
    "text_config": {"architectures": ["Qwen2ForCausalLM"], "bos_token_id": 151643,
                    "eos_token_id": 151645, "hidden_size": 896, "intermediate_size": 4864,
                    "max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14,
                    "num_hidden_layers": 24, "num_key_value_heads": 2, "rope_theta": 1000000.0,
                    "tie_word_embeddings": true, "torch_dtype": "bfloat16",
                    "use_sliding_window": false, "vocab_size": 152000},
    "tie_word_embeddings": false, "torch_dtype": "float16", "use_image_newline_parameter": true,
    "video_token_index": 151647, "vision_aspect_ratio": "anyres_max_9",
    "vision_config": {"hidden_size": 1152, "image_size": 384, "intermediate_size": 4304,
                      "model_type": "siglip_vision_model", "num_attention_heads": 16,
                      "num_hidden_layers": 26, "patch_size": 14, "vision_use_head": false},
    "vision_feature_layer": -1, "vision_feature_select_strategy": "full"})");
}

TEST(OnevisionSpec, IsThatOfTheHub) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(OnevisionConfig(), "config.json"));
  EXPECT_EQ(spec.architecture, "LlavaOnevisionForConditionalGeneration");
  EXPECT_TRUE(spec.tie_word_embeddings);
  EXPECT_TRUE(spec.layers.front().attention.qkv_bias);
  const VisionSpec& vision = *spec.vision;
  EXPECT_EQ(vision.image_token_id, 151646);
  EXPECT_EQ(vision.video_token_id, 151647);
  EXPECT_EQ(vision.tiles->side, 27);
  EXPECT_EQ(vision.tiles->num_read_layers, 26);
  EXPECT_FALSE(vision.tiles->class_token);
  EXPECT_EQ(vision.tiles->canvas->max_tiles, 9);
  EXPECT_THAT(vision.tiles->canvas->sizes,
              ElementsAre(CanvasSpec::Size{384, 384}, CanvasSpec::Size{384, 768},
                          CanvasSpec::Size{768, 384}, CanvasSpec::Size{2304, 2304}));
  EXPECT_EQ(vision.rows_per_tile(), 729);
  EXPECT_EQ(CountAmongOthers(vision), 730);

  ASSERT_OK_AND_ASSIGN(const StoredLayout layout,
                       StoredLayout::Create(ParameterTable(spec), /*folder=*/nullptr));
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const StoredTensor& tensor : layout.tensors()) shapes[tensor.name] = tensor.shape;
  EXPECT_THAT(shapes["image_newline"], ElementsAre(896));
  EXPECT_THAT(shapes["multi_modal_projector.linear_1.weight"], ElementsAre(896, 1152));
  EXPECT_THAT(shapes["vision_tower.post_layernorm.weight"], ElementsAre(1152));
  EXPECT_THAT(shapes["language_model.model.layers.23.self_attn.q_proj.bias"], ElementsAre(896));
}

// What the file leaves out is as in transformers' class.
TEST(OnevisionSpec, HasTheDefaultsOfItsClass) {
  json config = OnevisionConfig();
  for (const char* key : {"image_grid_pinpoints", "vision_aspect_ratio", "vision_feature_layer",
                          "vision_feature_select_strategy", "video_token_index"}) {
    config.erase(key);
  }
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(config, "config.json"));
  const TileSpec& tiles = *spec.vision->tiles;
  EXPECT_EQ(tiles.canvas->sizes.size(), 36U);
  EXPECT_EQ(tiles.canvas->sizes[7], (CanvasSpec::Size{768, 768}));
  EXPECT_EQ(tiles.canvas->max_tiles, 9);
  EXPECT_EQ(tiles.num_read_layers, 26);
  EXPECT_EQ(spec.vision->video_token_id, 151647);
}

TEST(OnevisionSpec, TheNewlineIsOfTheTower) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(OnevisionConfig(), "config.json"));
  const ParameterTable frozen(spec);
  EXPECT_EQ(frozen.parameter(frozen.vision().newline).name, "visual.newline");
  EXPECT_EQ(frozen.parameter(frozen.vision().newline).group, "vision");
  EXPECT_FALSE(frozen.parameter(frozen.vision().newline).trainable);
  const ParameterTable trained(spec, {.trains_vision = true});
  EXPECT_TRUE(trained.parameter(trained.vision().newline).trainable);
}

TEST(OnevisionSpec, NamesKeysThatDoNotFit) {
  const auto outer = [](const char* key, const json& value) {
    json config = OnevisionConfig();
    config[key] = value;
    return RefusalOf(config);
  };
  const json pinpoints = {{384, 384}, {384, 700}};
  EXPECT_THAT(outer("image_grid_pinpoints", pinpoints),
              AllOf(HasSubstr("\"image_grid_pinpoints\""), HasSubstr("multiples of"),
                    HasSubstr("at index 1 is [384,700]")));
  EXPECT_THAT(outer("image_grid_pinpoints", json::array()), HasSubstr("a list of 1 to"));
  EXPECT_THAT(outer("image_grid_pinpoints", {384, 384}), HasSubstr("at index 0 is 384"));
  EXPECT_THAT(outer("image_grid_pinpoints", {{384, -384}}), HasSubstr("at index 0"));
  EXPECT_THAT(outer("image_grid_pinpoints", {{384, 0}}), HasSubstr("at index 0"));
  EXPECT_THAT(outer("image_grid_pinpoints", {{384 * 100, 384 * 41}}), HasSubstr("4096 tiles"));
  EXPECT_THAT(outer("vision_aspect_ratio", "square"),
              AllOf(HasSubstr("\"vision_aspect_ratio\""), HasSubstr("anyres_max_1")));
  EXPECT_THAT(outer("vision_aspect_ratio", "anyres_max_0"), HasSubstr("\"vision_aspect_ratio\""));
  EXPECT_THAT(outer("vision_feature_select_strategy", "default"), HasSubstr("full"));
  EXPECT_THAT(outer("video_token_index", 152000), HasSubstr("\"video_token_index\""));
  json clip = OnevisionConfig();
  clip["vision_config"]["model_type"] = "clip_vision_model";
  EXPECT_THAT(RefusalOf(clip),
              AllOf(HasSubstr("\"model_type\""), HasSubstr("siglip_vision_model")));
}

constexpr int64_t kCanvasPlaceholder = 9;

// Tiles of 2 x 2 patches: an image among others has 5 placeholders.
VisionSpec SmallTower() {
  VisionSpec spec;
  spec.patch_size = 4;
  spec.merge_size = 1;
  spec.image_token_id = kCanvasPlaceholder;
  spec.video_token_id = 8;
  spec.has_text_positions = true;
  spec.tiles = TileSpec{.image_size = 8, .side = 2};
  spec.tiles->canvas = CanvasSpec{{{8, 8}, {8, 16}}, 9};
  return spec;
}

std::vector<int64_t> Sequence(const std::vector<int>& runs) {
  std::vector<int64_t> ids;
  for (const int run : runs) {
    ids.insert(ids.end(), static_cast<size_t>(run), kCanvasPlaceholder);
    ids.push_back(1);
  }
  return ids;
}

TEST(ImageForms, PlaceholdersTellThem) {
  const VisionSpec spec = SmallTower();
  // Of one tile and the whole; then by itself in a part of a conversation.
  EXPECT_THAT(FormsOf(spec, Sequence({10}), 1), ElementsAre(ImageForm::kAlone));
  EXPECT_THAT(FormsOf(spec, Sequence({5}), 1), ElementsAre(ImageForm::kAmongOthers));
  EXPECT_THAT(FormsOf(spec, Sequence({5, 5}), 2), Each(ImageForm::kAmongOthers));
  EXPECT_THAT(FormsOf(spec, Sequence({15}), 3), Each(ImageForm::kAmongOthers));
  // The first was alone when the conversation began.
  EXPECT_THAT(FormsOf(spec, Sequence({14, 5}), 2),
              ElementsAre(ImageForm::kAlone, ImageForm::kAmongOthers));
  EXPECT_THAT(FormsOf(spec, Sequence({10, 5}), 2),
              ElementsAre(ImageForm::kAlone, ImageForm::kAmongOthers));
  EXPECT_THAT(FormsOf(spec, Sequence({10, 5}), 3), Each(ImageForm::kAmongOthers));
  // Fewer placeholders than images: what there is, is not of several.
  EXPECT_THAT(FormsOf(spec, Sequence({}), 1), ElementsAre(ImageForm::kAlone));
  VisionSpec plain = spec;
  plain.tiles->canvas.reset();
  EXPECT_THAT(FormsOf(plain, Sequence({5, 5}), 2), Each(ImageForm::kAlone));
}

TEST(ImageForms, KeysTellThemApart) {
  const std::string digest(32, 'a');
  EXPECT_EQ(ImageKey(digest, ImageForm::kAlone), digest);
  const std::string other = ImageKey(digest, ImageForm::kAmongOthers);
  EXPECT_EQ(other.size(), digest.size());
  EXPECT_NE(other, digest);
}

TEST(ImageForms, ImagesOfBothArePlaced) {
  const VisionSpec spec = SmallTower();
  ASSERT_OK_AND_ASSIGN(const ImageGrid alone, PackTiles(*spec.tiles, {8, 16}, {8, 16}));
  EXPECT_EQ(NumImageRows(spec, alone), 4 + 2 * 5);
  const std::vector<ImageGrid> grids = {alone, PackOneTile(*spec.tiles)};
  ASSERT_OK_AND_ASSIGN(const ImagePlaces places, PlaceImages(spec, Sequence({14, 5}), grids));
  EXPECT_EQ(places.tokens.size(), 19U);
  EXPECT_EQ(places.tokens[14], 15);
  EXPECT_EQ(places.next_position, 21);
  EXPECT_THAT(PlaceImages(spec, Sequence({13, 5}), grids).status().message(),
              HasSubstr("images[0]: expected 14 placeholders"));
  EXPECT_THAT(PlaceImages(spec, Sequence({14, 6}), grids).status().message(),
              HasSubstr("no image is left"));
}

}  // namespace
}  // namespace tandem::model
