// A model folder that sees images, small enough for any test, and data sets of pictures that show one
// to four squares, with the number as the answer.
#ifndef TANDEM_TESTS_SUPPORT_PICTURE_DATA_H_
#define TANDEM_TESTS_SUPPORT_PICTURE_DATA_H_

#include <array>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "nlohmann/json.hpp"
#include "tests/support/character_tokenizer.h"
#include "tests/support/make_png.h"
#include "tests/support/temp_folder.h"

namespace tandem::testing {

// The config.json of a Qwen3-VL with experts that takes the same tokens and pictures as the model below.
inline nlohmann::json Qwen3PictureConfig() {
  return nlohmann::json::parse(R"({
    "architectures": ["Qwen3VLMoeForConditionalGeneration"], "model_type": "qwen3_vl_moe",
    "image_token_id": 16, "video_token_id": 17, "vision_start_token_id": 18,
    "vision_end_token_id": 19, "tie_word_embeddings": true,
    "text_config": {
      "bos_token_id": 1, "eos_token_id": 2, "head_dim": 16, "hidden_act": "silu",
      "hidden_size": 32, "initializer_range": 0.1, "intermediate_size": 48,
      "max_position_embeddings": 96, "mlp_only_layers": [1], "moe_intermediate_size": 24,
      "num_attention_heads": 4, "num_experts": 4, "num_experts_per_tok": 2,
      "num_hidden_layers": 3, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
      "rope_scaling": {"mrope_interleaved": true, "mrope_section": [4, 2, 2],
                       "rope_type": "default"},
      "rope_theta": 10000, "vocab_size": 22},
    "vision_config": {
      "deepstack_visual_indexes": [0, 1], "depth": 2, "hidden_act": "gelu_pytorch_tanh",
      "hidden_size": 32, "in_channels": 3, "intermediate_size": 48, "num_heads": 2,
      "num_position_embeddings": 16, "out_hidden_size": 32, "patch_size": 4,
      "spatial_merge_size": 2, "temporal_patch_size": 2}})");
}

// Puts Mistral 3, which takes the same tokens and pictures, in place of the model below in `folder`. A
// picture becomes two lines of two placeholders, with the token of videos between them and another
// <|vision_end|> behind them.
inline void WriteMistral3PictureModel(const TempFolder& folder) {
  using nlohmann::json;
  const json config = json::parse(R"({
    "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3",
    "image_token_index": 16, "tie_word_embeddings": true, "multimodal_projector_bias": false,
    "projector_hidden_act": "gelu", "spatial_merge_size": 2, "vision_feature_layer": -1,
    "text_config": {
      "bos_token_id": 1, "eos_token_id": 2, "head_dim": 8, "hidden_act": "silu",
      "hidden_size": 32, "initializer_range": 0.1, "intermediate_size": 48,
      "max_position_embeddings": 96, "model_type": "mistral", "num_attention_heads": 4,
      "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
      "rope_theta": 10000, "sliding_window": null, "vocab_size": 22},
    "vision_config": {
      "head_dim": 12, "hidden_act": "silu", "hidden_size": 24, "image_size": 16,
      "intermediate_size": 48, "model_type": "pixtral", "num_attention_heads": 2,
      "num_channels": 3, "num_hidden_layers": 2, "patch_size": 4, "rope_theta": 10000}})");
  const json preprocessor = {{"image_processor_type", "PixtralImageProcessor"},
                             {"image_mean", {0.5, 0.5, 0.5}},
                             {"image_std", {0.25, 0.25, 0.25}},
                             {"patch_size", {{"height", 4}, {"width", 4}}},
                             {"size", {{"longest_edge", 32}}}};
  const json processor = {{"processor_class", "PixtralProcessor"},
                          {"image_token", "<|image_pad|>"},
                          {"image_break_token", "<|video_pad|>"},
                          {"image_end_token", "<|vision_end|>"},
                          {"patch_size", 4},
                          {"spatial_merge_size", 2}};
  folder.Write("model/config.json", config.dump());
  folder.Write("model/preprocessor_config.json", preprocessor.dump());
  folder.Write("model/processor_config.json", processor.dump());
}

// Writes a Qwen2-VL without weights (for model.random_init) into `folder`/model and returns that path. A
// picture of 16 x 16 pixels becomes 4 tokens.
inline std::string WritePictureModel(const TempFolder& folder) {
  using nlohmann::json;
  const json config = {{"architectures", {"Qwen2VLForConditionalGeneration"}},
                       {"model_type", "qwen2_vl"},
                       {"bos_token_id", 1},
                       {"eos_token_id", 2},
                       {"vision_start_token_id", 18},
                       {"vision_end_token_id", 19},
                       {"vision_token_id", 20},
                       {"image_token_id", 16},
                       {"video_token_id", 17},
                       {"hidden_act", "silu"},
                       {"hidden_size", 32},
                       {"initializer_range", 0.1},
                       {"intermediate_size", 48},
                       {"max_position_embeddings", 96},
                       {"max_window_layers", 28},
                       {"num_attention_heads", 4},
                       {"num_hidden_layers", 2},
                       {"num_key_value_heads", 2},
                       {"rms_norm_eps", 1e-06},
                       {"rope_theta", 10000.0},
                       {"sliding_window", 32768},
                       {"tie_word_embeddings", true},
                       {"use_sliding_window", false},
                       {"vocab_size", 22},
                       {"torch_dtype", "float32"},
                       {"vision_config",
                        {{"depth", 2},
                         {"embed_dim", 32},
                         {"mlp_ratio", 2},
                         {"num_heads", 2},
                         {"in_chans", 3},
                         {"hidden_size", 32},
                         {"patch_size", 4},
                         {"spatial_merge_size", 2},
                         {"spatial_patch_size", 4},
                         {"temporal_patch_size", 2}}},
                       {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {1, 1, 2}}}}};
  json vocabulary = {{"<unk>", 0}, {"<bos>", 1}, {"<end>", 2}};
  int next = 3;
  for (const char c : std::string("0123456789?")) vocabulary[std::string(1, c)] = next++;
  json added = json::array();
  for (const char* name : {"<|im_start|>", "<|im_end|>", "<|image_pad|>", "<|video_pad|>",
                           "<|vision_start|>", "<|vision_end|>"}) {
    vocabulary[name] = next;
    added.push_back(AddedToken(next++, name, /*special=*/true));
  }
  added.push_back(AddedToken(2, "<end>", /*special=*/true));
  const std::string chat =
      "{% for m in messages %}<|im_start|>{% if m.content is string %}{{ m.content }}{% else %}"
      "{% for part in m.content %}{% if part.type == 'image' or part.type == 'image_url' %}"
      "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}{% endfor %}"
      "{% endif %}<end>{% endfor %}{% if add_generation_prompt %}<|im_start|>{% endif %}";
  const json tokenizer_config = {
      {"eos_token", "<end>"}, {"unk_token", "<unk>"}, {"chat_template", chat}};
  const json processor = {{"image_processor_type", "Qwen2VLImageProcessor"},
                          {"do_convert_rgb", true},
                          {"do_normalize", true},
                          {"do_rescale", true},
                          {"do_resize", true},
                          {"image_mean", {0.5, 0.5, 0.5}},
                          {"image_std", {0.25, 0.25, 0.25}},
                          {"merge_size", 2},
                          {"patch_size", 4},
                          {"resample", 3},
                          {"rescale_factor", 0.00392156862745098},
                          {"size", {{"shortest_edge", 256}, {"longest_edge", 1024}}},
                          {"temporal_patch_size", 2}};
  folder.Write("model/config.json", config.dump());
  folder.Write("model/tokenizer.json", CharacterTokenizer(vocabulary, added).dump());
  folder.Write("model/tokenizer_config.json", tokenizer_config.dump());
  folder.Write("model/preprocessor_config.json", processor.dump());
  return folder / "model";
}

// Puts Idefics 3, which takes the same pictures, in place of the model that WritePictureModel() wrote into
// `folder`. A picture becomes 2 x 2 tiles and one of the whole, of 4 placeholders each, whose names are text
// to the tokenizer.
inline void WriteIdefics3PictureModel(const TempFolder& folder) {
  using nlohmann::json;
  const json config = json::parse(R"({
    "architectures": ["Idefics3ForConditionalGeneration"], "model_type": "idefics3",
    "image_token_id": 16, "scale_factor": 2, "tie_word_embeddings": false,
    "text_config": {"model_type": "llama", "vocab_size": 22, "hidden_size": 32,
                    "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
                    "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": 1,
                    "eos_token_id": 2, "initializer_range": 0.1},
    "vision_config": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
                      "num_attention_heads": 2, "image_size": 16, "patch_size": 4}})");
  const json preprocessor = {{"image_processor_type", "Idefics3ImageProcessor"},
                             {"size", {{"longest_edge", 32}}},
                             {"max_image_size", {{"longest_edge", 16}}}};
  std::ifstream file(folder / "model/tokenizer.json");
  json tokenizer = json::parse(file);
  tokenizer["model"]["vocab"]["<fake_token_around_image>"] = 20;
  tokenizer["added_tokens"].push_back(
      AddedToken(20, "<fake_token_around_image>", /*special=*/true));
  folder.Write("model/config.json", config.dump());
  folder.Write("model/preprocessor_config.json", preprocessor.dump());
  folder.Write("model/processor_config.json", R"({"image_seq_len": 4})");
  folder.Write("model/tokenizer.json", tokenizer.dump());
}

// The PNG file of a grey picture of 16 x 16 pixels, in whose quarters stand `count` white squares.
inline std::string SquaresPng(int count, int grey) {
  return MakePng(16, 16, [count, grey](int x, int y) {
    const bool is_inside = x % 8 >= 2 && x % 8 < 6 && y % 8 >= 2 && y % 8 < 6;
    const int quarter = y / 8 * 2 + x / 8;
    const auto value = static_cast<uint8_t>(quarter < count && is_inside ? 255 : grey);
    return std::array<uint8_t, 3>{value, value, value};
  });
}

// Writes `count` rows into `folder`/NAME.jsonl, with their pictures in `folder`/pictures, and returns
// its path. Some rows list their picture, some have it in the message, some as a data URL.
inline std::string WritePictures(const TempFolder& folder, const std::string& name, int count,
                                 int first = 0) {
  using nlohmann::json;
  std::string text;
  for (int i = first; i < first + count; ++i) {
    const int squares = 1 + i % 4;
    const std::string png = SquaresPng(squares, i * 7 % 128);
    const std::string file = "pictures/" + std::to_string(i) + ".png";
    folder.Write(file, png);
    json row = {{"answer", std::to_string(squares)}};
    json part = {{"type", "image"}};
    if (i % 3 == 0) {
      row["images"] = {file};
    } else if (i % 3 == 1) {
      part["image"] = file;
    } else {
      part = {{"type", "image_url"},
              {"image_url", {{"url", "data:image/png;base64," + absl::Base64Escape(png)}}}};
    }
    row["prompt"] = json::array(
        {{{"role", "user"}, {"content", json::array({part, {{"type", "text"}, {"text", "?"}}})}}});
    text += row.dump() + "\n";
  }
  return folder.Write(name + ".jsonl", text);
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_PICTURE_DATA_H_
