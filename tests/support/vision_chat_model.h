// A tiny model that sees images, with a tokenizer and a chat template: a case of
// tests/common/model/vision_golden, whose weights and images it has.
#ifndef TANDEM_TESTS_SUPPORT_VISION_CHAT_MODEL_H_
#define TANDEM_TESTS_SUPPORT_VISION_CHAT_MODEL_H_

#include <filesystem>
#include <string>

#include "nlohmann/json.hpp"
#include "tests/support/character_tokenizer.h"
#include "tests/support/temp_folder.h"
#include "tests/support/vision_golden.h"

namespace tandem::testing {

// The characters of ids 3 to 35.
inline constexpr char kVisionCharacters[] = "abcdefghijklmnopqrstuvwxyz ?=.,:!";

// Writes it into `folder`/model and returns that path. Images: a.png, which has 24 placeholders, or of
// Mistral 3 five lines of six, b.png and c.png. A chat is its messages one after another, and "=" where
// an answer is to come. Of Idefics 3, a.png becomes 3 x 3 tiles of 4 placeholders and the whole.
inline std::string WriteVisionChatModel(const TempFolder& folder,
                                        const std::string& name = "qwen2-vl") {
  using nlohmann::json;
  std::filesystem::copy(VisionGolden(name), folder / "model");
  const bool has_lines = name.rfind("mistral3", 0) == 0;
  json vocabulary = {{"<unk>", 40}};
  json added = json::array();
  const auto add = [&](int id, const std::string& content) {
    vocabulary[content] = id;
    added.push_back(AddedToken(id, content, /*special=*/true));
  };
  add(0, "<|pad|>");
  add(1, "<|bos|>");
  add(2, "<|eos|>");
  int next = 3;
  for (const char c : std::string(kVisionCharacters)) vocabulary[std::string(1, c)] = next++;
  const bool is_gemma = name.rfind("gemma3", 0) == 0;
  const bool has_names = name == "idefics3" || name == "smolvlm";
  const std::string placeholder = has_lines   ? "[IMG]"
                                  : is_gemma  ? "<image_soft_token>"
                                  : has_names ? "<image>"
                                              : "<|image_pad|>";
  add(36, placeholder);
  add(37, has_lines ? "[IMG_BREAK]" : "<|video_pad|>");
  // InternVL's processor puts its tokens around an image, as Mistral 3's puts those behind lines; the
  // templates of others write theirs.
  const bool has_bounds = name.rfind("internvl", 0) == 0;
  const std::string start = has_bounds  ? "<img>"
                            : is_gemma  ? "<start_of_image>"
                            : has_names ? "<fake_token_around_image>"
                                        : "<|vision_start|>";
  const std::string end = has_bounds  ? "</img>"
                          : is_gemma  ? "<end_of_image>"
                          : has_names ? "<global-img>"
                                      : "<|vision_end|>";
  add(38, has_lines ? "[IMG_END]" : start);
  add(39, end);
  if (has_names) {
    // As vision_golden.py has them.
    add(41, "\n");
    add(42, "\n\n");
    for (int i = 0; i < 9; ++i) {
      add(43 + i, "<row_" + std::to_string(i / 3 + 1) + "_col_" + std::to_string(i % 3 + 1) + ">");
    }
  }
  const bool has_texts = has_lines || has_bounds || has_names;
  // Gemma 3's processor puts its placeholders and ends of line, which are <unk> here, around its start.
  const std::string image = is_gemma ? start : has_texts ? placeholder : start + placeholder + end;
  folder.Write("model/tokenizer.json", CharacterTokenizer(vocabulary, added).dump());
  folder.Write("model/tokenizer_config.json", R"({"eos_token": "<|eos|>", "unk_token": "<unk>"})");
  folder.Write("model/chat_template.jinja",
               "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
               "{% for p in m.content %}{% if p.type == 'image' or 'image_url' in p %}" +
                   image +
                   "{% elif 'text' in p %}{{ p.text }}{% endif %}{% endfor %}{% endif %}"
                   "{% endfor %}{% if add_generation_prompt %}={% endif %}");
  return folder / "model";
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_VISION_CHAT_MODEL_H_
