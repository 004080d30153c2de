// A model folder that is small enough for any test: a character tokenizer and a config.json;
// weights are drawn anew (model.random_init).
#ifndef TANDEM_TESTS_SUPPORT_TINY_MODEL_H_
#define TANDEM_TESTS_SUPPORT_TINY_MODEL_H_

#include <string>

#include "nlohmann/json.hpp"
#include "tests/support/character_tokenizer.h"
#include "tests/support/temp_folder.h"

namespace tandem::testing {

// What its config.json says.
inline nlohmann::json TinyModelConfig(const std::string& architecture = "LlamaForCausalLM") {
  nlohmann::json config = {{"architectures", {architecture}},
                           {"model_type", architecture == "LlamaForCausalLM"      ? "llama"
                                          : architecture == "Qwen2ForCausalLM"    ? "qwen2"
                                          : architecture == "Qwen3MoeForCausalLM" ? "qwen3_moe"
                                          : architecture == "MiniCPM3ForCausalLM" ? "minicpm3"
                                                                                  : "qwen3"},
                           {"hidden_size", 32},
                           {"intermediate_size", 64},
                           {"num_hidden_layers", 2},
                           {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},
                           {"head_dim", 8},
                           {"vocab_size", 15},
                           {"max_position_embeddings", 64},
                           {"rms_norm_eps", 1e-6},
                           {"rope_theta", 10000.0},
                           {"hidden_act", "silu"},
                           {"tie_word_embeddings", false},
                           {"initializer_range", 0.1},
                           {"eos_token_id", 0},
                           {"torch_dtype", "float32"}};
  if (architecture == "Qwen3MoeForCausalLM") {
    config.update({{"num_experts", 5},
                   {"num_experts_per_tok", 2},
                   {"moe_intermediate_size", 24},
                   {"norm_topk_prob", true}});
  }
  if (architecture == "MiniCPM3ForCausalLM") {
    config.update({{"num_key_value_heads", 4},
                   {"kv_lora_rank", 12},
                   {"q_lora_rank", 10},
                   {"qk_nope_head_dim", 8},
                   {"qk_rope_head_dim", 4},
                   {"v_head_dim", 6}});
  }
  return config;
}

// Writes it into `folder`/model and returns that path. Vocabulary: <eos> 0, <unk> 1, digits 2 to
// 11,
// '+' 12, '=' 13, ',' 14.
inline std::string WriteTinyModel(const TempFolder& folder,
                                  const std::string& architecture = "LlamaForCausalLM") {
  using nlohmann::json;
  json vocabulary = {{"<eos>", 0}, {"<unk>", 1}};
  int next = 2;
  for (const char c : std::string("0123456789+=,")) vocabulary[std::string(1, c)] = next++;
  const json tokenizer =
      CharacterTokenizer(vocabulary, json::array({AddedToken(0, "<eos>", /*special=*/true)}));
  folder.Write("model/config.json", TinyModelConfig(architecture).dump());
  folder.Write("model/tokenizer.json", tokenizer.dump());
  folder.Write("model/tokenizer_config.json", R"({"eos_token": "<eos>", "unk_token": "<unk>"})");
  return folder / "model";
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_TINY_MODEL_H_
