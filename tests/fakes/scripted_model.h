// A model folder whose greedy answers a test writes down: each token decides the next one, because
// attention and feed-forward add nothing. The weights are read, computed and sampled like any other's.
#ifndef TANDEM_TESTS_FAKES_SCRIPTED_MODEL_H_
#define TANDEM_TESTS_FAKES_SCRIPTED_MODEL_H_

#include <ATen/ATen.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "tests/common/model/tensor_files.h"
#include "tests/support/character_tokenizer.h"
#include "tests/support/temp_folder.h"

namespace tandem::testing {

struct Script {
  // Each line is tokens in the order in which they are sampled, the first one a prompt's last token.
  // A token stands for its text and has one successor in all lines; a line ends at <eos>.
  std::vector<std::vector<std::string>> lines;
  std::set<std::string> special = {};         // omitted from decoded text
  std::vector<std::string> more_tokens = {};  // of prompts
  std::string chat_template;
};

// Writes it into `folder`/model and returns that path. Prompts are cut at the script's tokens; other
// characters are <unk>.
inline absl::StatusOr<std::string> WriteScriptedModel(const TempFolder& folder,
                                                      const Script& script) {
  using nlohmann::json;
  constexpr int kSize = 64;  // of the vocabulary and the hidden states
  std::vector<std::string> tokens = {"<eos>", "<unk>"};
  std::map<std::string, int> ids = {{"<eos>", 0}, {"<unk>", 1}};
  const auto id_of = [&](const std::string& token) {
    const auto [at, is_new] = ids.emplace(token, static_cast<int>(tokens.size()));
    if (is_new) tokens.push_back(token);
    return at->second;
  };
  std::map<int, int> next;
  for (const std::vector<std::string>& line : script.lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      next[id_of(line[i])] = i + 1 < line.size() ? id_of(line[i + 1]) : 0;
    }
  }
  for (const std::string& token : script.more_tokens) id_of(token);
  if (tokens.size() > kSize) return absl::InvalidArgumentError("the script has too many tokens");

  json vocabulary = json::object(), added = json::array();
  for (size_t i = 0; i < tokens.size(); ++i) {
    vocabulary[tokens[i]] = i;
    if (tokens[i] == "<unk>") continue;
    added.push_back(AddedToken(static_cast<int>(i), tokens[i],
                               /*special=*/i == 0 || script.special.contains(tokens[i])));
  }
  const json tokenizer = CharacterTokenizer(vocabulary, added);
  const json config = {{"architectures", {"LlamaForCausalLM"}},
                       {"model_type", "llama"},
                       {"hidden_size", kSize},
                       {"intermediate_size", 8},
                       {"num_hidden_layers", 1},
                       {"num_attention_heads", 1},
                       {"num_key_value_heads", 1},
                       {"head_dim", 8},
                       {"vocab_size", kSize},
                       {"max_position_embeddings", 1024},
                       {"rms_norm_eps", 1e-6},
                       {"rope_theta", 10000.0},
                       {"hidden_act", "silu"},
                       {"tie_word_embeddings", false},
                       {"eos_token_id", 0},
                       {"torch_dtype", "float32"}};
  folder.Write("model/config.json", config.dump());
  folder.Write("model/tokenizer.json", tokenizer.dump());
  folder.Write("model/tokenizer_config.json",
               json{{"eos_token", "<eos>"}, {"chat_template", script.chat_template}}.dump());

  at::Tensor head = at::zeros({kSize, kSize});
  // The norm makes a one 8, so the successor's logit is 16 and all others are 0.
  for (const auto& [from, to] : next) head[to][from] = 2.0f;
  const std::string layer = "model.layers.0.";
  model::NamedTensors tensors = {{"model.embed_tokens.weight", at::eye(kSize)},
                                 {"model.norm.weight", at::ones({kSize})},
                                 {"lm_head.weight", head},
                                 {layer + "input_layernorm.weight", at::ones({kSize})},
                                 {layer + "post_attention_layernorm.weight", at::ones({kSize})},
                                 {layer + "self_attn.o_proj.weight", at::zeros({kSize, 8})},
                                 {layer + "mlp.down_proj.weight", at::zeros({kSize, 8})}};
  for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                           "mlp.gate_proj", "mlp.up_proj"}) {
    tensors[absl::StrCat(layer, name, ".weight")] = at::zeros({8, kSize});
  }
  RETURN_IF_ERROR(model::WriteTensors(folder / "model", tensors));
  return folder / "model";
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_SCRIPTED_MODEL_H_
