// ModelSpec: what config.json of a Hugging Face folder says about a decoder-only transformer, for
// the families that Tandem computes: Llama, Qwen2 (2.5) and Qwen3, dense.
//
//   ASSIGN_OR_RETURN(nlohmann::json config, ...);
//   ASSIGN_OR_RETURN(ModelSpec spec, ParseModelSpec(config, "model/config.json"));
#ifndef TANDEM_COMMON_MODEL_MODEL_SPEC_H_
#define TANDEM_COMMON_MODEL_MODEL_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace tandem::model {

// Llama 3.1's stretching of the low rotary frequencies (2407.21783).
struct Llama3RopeScaling {
  double factor = 8.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position_embeddings = 8192;
};

struct RopeSpec {
  double theta = 10000.0;
  // Positions are divided by this (rope type "linear"); 1 leaves them.
  double linear_factor = 1.0;
  std::optional<Llama3RopeScaling> llama3;
};

struct ModelSpec {
  std::string architecture;  // "LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_heads
  int64_t head_dim = 0;      // need not be hidden_size / num_heads
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.02;
  RopeSpec rope;
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;
  bool qk_norm = false;  // RMSNorm over head_dim on q and k, before rotation
  bool tie_word_embeddings = false;
  // A scalar of each token in place of the output projection: a critic (ValueModelSpec).
  bool value_head = false;
  // End-of-sequence ids of config.json; generation_config.json may add more (io::ModelFolder).
  std::vector<int64_t> eos_token_ids;
  std::optional<int64_t> bos_token_id;
  std::optional<int64_t> pad_token_id;

  int64_t q_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
  // Elements of all parameters, tied ones once.
  int64_t num_parameters() const;
};

// The same model with a value head, score.weight [1, hidden] and score.bias [1], in place of the
// output projection, as transformers' ForTokenClassification of one label has it.
ModelSpec ValueModelSpec(ModelSpec policy);

// Reads a config.json. `place` names the file in errors. INVALID_ARGUMENT names the key: a missing
// or non-positive size, heads that do not divide, a size so large that a product overflows.
// UNIMPLEMENTED: another architecture, activation, rope type, or sliding-window attention in use.
absl::StatusOr<ModelSpec> ParseModelSpec(const nlohmann::json& config, const std::string& place);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_MODEL_SPEC_H_
