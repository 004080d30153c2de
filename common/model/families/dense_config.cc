#include "common/model/families/dense_config.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

using nlohmann::json;

// transformers' default: the layers before it see all tokens.
constexpr int64_t kDefaultMaxWindowLayers = 28;

// transformers 5 writes "rope_parameters" with the base inside; older versions "rope_theta" beside
// an optional "rope_scaling".
absl::StatusOr<RopeSpec> ParseRope(const ConfigReader& config, double default_theta) {
  RopeSpec rope;
  ASSIGN_OR_RETURN(rope.theta, config.Positive("rope_theta", default_theta));
  const char* key = config.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!config.Has(key)) return rope;
  if (!config.At(key).is_object()) return config.Invalid(key, "an object or null");
  const ConfigReader scaling(config.At(key), absl::StrCat(config.place(), ": ", key));
  ASSIGN_OR_RETURN(rope.theta, scaling.Positive("rope_theta", rope.theta));
  ASSIGN_OR_RETURN(const double rotated_share, scaling.Positive("partial_rotary_factor", 1.0));
  if (rotated_share != 1.0) return scaling.Unsupported("partial_rotary_factor", "1");
  const char* type_key = scaling.Has("rope_type") ? "rope_type" : "type";
  ASSIGN_OR_RETURN(const std::string type, scaling.Text(type_key, "default"));
  if (type == "default") return rope;
  if (type == "linear") {
    if (!scaling.Has("factor")) return scaling.Invalid("factor", "a positive number");
    ASSIGN_OR_RETURN(rope.linear_factor, scaling.Positive("factor", 1.0));
    return rope;
  }
  if (type != "llama3") return scaling.Unsupported(type_key, "default, linear, llama3");
  Llama3RopeScaling llama3;
  ASSIGN_OR_RETURN(llama3.factor, scaling.Positive("factor", llama3.factor));
  ASSIGN_OR_RETURN(llama3.low_freq_factor,
                   scaling.Positive("low_freq_factor", llama3.low_freq_factor));
  ASSIGN_OR_RETURN(llama3.high_freq_factor,
                   scaling.Positive("high_freq_factor", llama3.high_freq_factor));
  ASSIGN_OR_RETURN(llama3.original_max_position_embeddings,
                   scaling.Size("original_max_position_embeddings", kMaxPositions,
                                llama3.original_max_position_embeddings));
  if (llama3.high_freq_factor <= llama3.low_freq_factor) {
    return scaling.Invalid("high_freq_factor", "greater than \"low_freq_factor\"");
  }
  rope.llama3 = llama3;
  return rope;
}

// Returns the layers with a sliding window: those that "layer_types" names or, without that key,
// those from "max_window_layers" on.
absl::StatusOr<std::vector<int64_t>> SlidingLayers(const ConfigReader& config,
                                                   const DenseDefaults& defaults,
                                                   int64_t num_layers) {
  std::vector<int64_t> sliding;
  if (config.Has("layer_types")) {
    const json& types = config.At("layer_types");
    if (!types.is_array()) return config.Invalid("layer_types", "a list of names");
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i] == "sliding_attention") {
        sliding.push_back(static_cast<int64_t>(i));
      } else if (types[i] != "full_attention") {
        return config.Unsupported("layer_types", "full_attention, sliding_attention");
      }
    }
    if (!sliding.empty() && static_cast<int64_t>(types.size()) != num_layers) {
      return config.Invalid(
          "layer_types", absl::StrCat("a list of \"num_hidden_layers\", ", num_layers, ", names"));
    }
    return sliding;
  }
  ASSIGN_OR_RETURN(const bool in_use, config.Flag("use_sliding_window", false));
  // Null means that there is none; without the key the family's default holds.
  const bool has_window = config.Has("sliding_window") ||
                          (defaults.sliding_window > 0 && !config.IsNull("sliding_window"));
  if (!in_use || !has_window) return sliding;
  ASSIGN_OR_RETURN(const int64_t first,
                   config.Count("max_window_layers", kMaxLayers, kDefaultMaxWindowLayers));
  for (int64_t i = first; i < num_layers; ++i) sliding.push_back(i);
  return sliding;
}

absl::Status ParseWindows(const ConfigReader& config, const DenseDefaults& defaults,
                          std::vector<LayerSpec>& layers) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> sliding,
                   SlidingLayers(config, defaults, static_cast<int64_t>(layers.size())));
  if (sliding.empty()) return absl::OkStatus();
  if (defaults.sliding_window == 0) {
    return config.Has("layer_types") ? config.Unsupported("layer_types", "full_attention")
                                     : config.Unsupported("use_sliding_window", "false");
  }
  ASSIGN_OR_RETURN(const bool in_use, config.Flag("use_sliding_window", false));
  if (!in_use) {
    return config.Invalid("use_sliding_window", "true, as \"layer_types\" names sliding_attention");
  }
  if (config.IsNull("sliding_window")) {
    return config.Invalid("sliding_window", "a number of tokens");
  }
  ASSIGN_OR_RETURN(const int64_t window,
                   config.Size("sliding_window", kMaxPositions, defaults.sliding_window));
  for (const int64_t i : sliding) layers[i].attention.window = window;
  return absl::OkStatus();
}

absl::StatusOr<AttentionSpec> ParseHeads(const ConfigReader& config, const DenseDefaults& defaults,
                                         int64_t hidden_size, AttentionSpec spec) {
  ASSIGN_OR_RETURN(spec.num_heads, config.Size("num_attention_heads", kMaxHeads));
  ASSIGN_OR_RETURN(spec.num_kv_heads,
                   config.Size("num_key_value_heads", kMaxHeads, spec.num_heads));
  if (spec.num_heads % spec.num_kv_heads != 0) {
    return config.Invalid("num_key_value_heads",
                          absl::StrCat("a divisor of \"num_attention_heads\", ", spec.num_heads));
  }
  if (!config.Has("head_dim") && defaults.head_dim == 0 && hidden_size % spec.num_heads != 0) {
    return config.Invalid("num_attention_heads",
                          absl::StrCat("a divisor of \"hidden_size\", ", hidden_size,
                                       ", where \"head_dim\" is absent"));
  }
  ASSIGN_OR_RETURN(
      spec.head_dim,
      config.Size("head_dim", kMaxHeadDim,
                  defaults.head_dim != 0 ? defaults.head_dim : hidden_size / spec.num_heads));
  if (spec.head_dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.place(), ": \"head_dim\" must be even, for rotary embeddings; found ",
                     spec.head_dim));
  }
  return spec;
}

}  // namespace

absl::StatusOr<ModelSpec> ParseDenseConfig(const ConfigReader& config,
                                           const DenseDefaults& defaults, LayerSpec layer) {
  ModelSpec spec;
  ASSIGN_OR_RETURN(spec.vocab_size, config.Size("vocab_size", kMaxVocab));
  ASSIGN_OR_RETURN(spec.hidden_size, config.Size("hidden_size", kMaxWidth));
  ASSIGN_OR_RETURN(layer.feed_forward.intermediate_size,
                   config.Size("intermediate_size", kMaxWidth));
  ASSIGN_OR_RETURN(const int64_t num_layers, config.Size("num_hidden_layers", kMaxLayers));
  ASSIGN_OR_RETURN(layer.attention,
                   ParseHeads(config, defaults, spec.hidden_size, layer.attention));
  ASSIGN_OR_RETURN(
      spec.max_position_embeddings,
      config.Size("max_position_embeddings", kMaxPositions, defaults.max_position_embeddings));
  ASSIGN_OR_RETURN(spec.rms_norm_eps, config.Positive("rms_norm_eps", defaults.rms_norm_eps));
  ASSIGN_OR_RETURN(spec.initializer_range,
                   config.Positive("initializer_range", spec.initializer_range));
  ASSIGN_OR_RETURN(spec.tie_word_embeddings, config.Flag("tie_word_embeddings", false));

  ASSIGN_OR_RETURN(const std::string activation, config.Text("hidden_act", "silu"));
  if (activation != "silu" && activation != "swish") {
    return config.Unsupported("hidden_act", "silu");
  }
  if (config.Has("quantization_config")) {
    return absl::UnimplementedError(
        absl::StrCat(config.place(),
                     ": \"quantization_config\": quantised checkpoints are not supported; export "
                     "the model in float32, bfloat16 or float16"));
  }
  ASSIGN_OR_RETURN(spec.rope, ParseRope(config, defaults.rope_theta));
  spec.layers.assign(static_cast<size_t>(num_layers), layer);
  RETURN_IF_ERROR(ParseWindows(config, defaults, spec.layers));

  ASSIGN_OR_RETURN(spec.eos_token_ids, config.TokenIds("eos_token_id"));
  ASSIGN_OR_RETURN(spec.bos_token_id, config.TokenId("bos_token_id"));
  ASSIGN_OR_RETURN(spec.pad_token_id, config.TokenId("pad_token_id"));
  return spec;
}

}  // namespace tandem::model
