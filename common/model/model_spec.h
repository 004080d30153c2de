// ModelSpec: a decoder-only transformer as numbers: properties of the whole model and a list of its
// layers. Parameters, units, arenas, manifest, caches, checkpoints and memory plan all derive from
// it.
//
//   ASSIGN_OR_RETURN(nlohmann::json config, io::ReadJsonFile("model/config.json"));
//   ASSIGN_OR_RETURN(ModelSpec spec, ParseModelSpec(config, "model/config.json"));
#ifndef TANDEM_COMMON_MODEL_MODEL_SPEC_H_
#define TANDEM_COMMON_MODEL_MODEL_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/layers/attention_spec.h"
#include "common/model/layers/expert_spec.h"
#include "common/model/layers/feed_forward_spec.h"
#include "nlohmann/json_fwd.hpp"

namespace tandem::model {

// Llama 3.1's scaling of the low rotary frequencies (2407.21783).
struct Llama3RopeScaling {
  double factor = 8.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position_embeddings = 8192;
};

struct RopeSpec {
  double theta = 10000.0;
  // Divides positions (rope type "linear"); 1: no scaling.
  double linear_factor = 1.0;
  std::optional<Llama3RopeScaling> llama3;
};

// Attention, then a feed-forward layer, dense or of experts, each behind an RMSNorm and added to
// its input.
struct LayerSpec {
  AttentionSpec attention;
  FeedForwardSpec feed_forward;
  std::optional<ExpertSpec> experts;  // if set, in place of feed_forward

  friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

struct ModelSpec {
  std::string architecture;  // "LlamaForCausalLM"; see families/registry.h
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.02;
  RopeSpec rope;  // of all layers, which have one head_dim
  bool tie_word_embeddings = false;
  // True for a critic: one scalar per token in place of the output projection (ValueModelSpec).
  bool value_head = false;
  // End-of-sequence ids of config.json; generation_config.json may add more (io::ModelFolder).
  std::vector<int64_t> eos_token_ids;
  std::optional<int64_t> bos_token_id;
  std::optional<int64_t> pad_token_id;

  std::vector<LayerSpec> layers;  // in the order of the forward pass; at least one

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  // Elements of all parameters; tied ones count once.
  int64_t num_parameters() const;
  // Of these, the elements of experts that a token does not reach.
  int64_t num_idle_parameters() const;
  // The others.
  int64_t num_active_parameters() const;
};

// Returns the same model with a value head, score.weight [1, hidden] and score.bias [1], in place
// of the output projection, like transformers' ForTokenClassification with one label.
ModelSpec ValueModelSpec(ModelSpec policy);

// Returns the elements of KV cache that a token takes in all layers together, on the rank of
// `tensor_ranks` with the most heads. Times the element size these are bytes. With sliding windows,
// this is the share of one block of each group (cache_groups.h), until the token leaves a window.
int64_t ModelCacheElementsPerToken(const ModelSpec& spec, int tensor_ranks, bool on_gpu);

// Reads a config.json of one of the families (families/registry.h). `place` names the file in
// errors. INVALID_ARGUMENT names the key: a missing or non-positive size, heads that do not divide,
// a size so large that a product overflows. UNIMPLEMENTED: another architecture, activation, rope
// type, or sliding windows in a family that has none.
absl::StatusOr<ModelSpec> ParseModelSpec(const nlohmann::json& config, const std::string& place);

// Reads the config.json of a value model: of the transformer that it begins from, or of
// transformers' ...ForTokenClassification with one label. Errors are those of ParseModelSpec().
absl::StatusOr<ModelSpec> ParseValueModelSpec(nlohmann::json config, const std::string& place);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_MODEL_SPEC_H_
