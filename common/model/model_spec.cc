#include "common/model/model_spec.h"

#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"

namespace tandem::model {
namespace {

using nlohmann::json;

// Sizes beyond these are a corrupt file; below them no product of sizes overflows an int64.
constexpr int64_t kMaxVocab = int64_t{1} << 28;
constexpr int64_t kMaxWidth = int64_t{1} << 22;
constexpr int64_t kMaxLayers = int64_t{1} << 14;
constexpr int64_t kMaxHeads = int64_t{1} << 14;
constexpr int64_t kMaxHeadDim = int64_t{1} << 12;
constexpr int64_t kMaxPositions = int64_t{1} << 31;

// Negative ones stand for "none". Unsigned numbers are looked at as such, for large ones would
// wrap.
bool IsTokenId(const json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>() <= uint64_t{kMaxVocab};
  return value.is_number_integer();
}

// Typed access to the keys of one JSON object; the errors name the file and the key.
class Reader {
 public:
  Reader(const json& object, std::string place) : object_(object), place_(std::move(place)) {}

  bool Has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }
  const json& At(const char* key) const { return object_[key]; }

  absl::Status Invalid(const char* key, const std::string& expected) const {
    const std::string found = object_.contains(key) ? object_[key].dump().substr(0, 80) : "nothing";
    return absl::InvalidArgumentError(
        absl::StrCat(place_, ": \"", key, "\" must be ", expected, "; found ", found));
  }
  absl::Status Unsupported(const char* key, const std::string& supported) const {
    return absl::UnimplementedError(absl::StrCat(place_, ": \"", key, "\" is ",
                                                 object_[key].dump().substr(0, 80),
                                                 "; supported: ", supported));
  }

  absl::StatusOr<int64_t> Size(const char* key, int64_t most,
                               std::optional<int64_t> absent = std::nullopt) const {
    if (!Has(key) && absent.has_value()) return *absent;
    if (!Has(key) || !At(key).is_number_integer() || At(key) < 1 || At(key) > most) {
      return Invalid(key, absl::StrCat("an integer from 1 to ", most));
    }
    return At(key).get<int64_t>();
  }
  absl::StatusOr<double> Positive(const char* key, double absent) const {
    if (!Has(key)) return absent;
    if (!At(key).is_number() || !(At(key).get<double>() > 0) ||
        !std::isfinite(At(key).get<double>())) {
      return Invalid(key, "a positive number");
    }
    return At(key).get<double>();
  }
  absl::StatusOr<bool> Flag(const char* key, bool absent) const {
    if (!Has(key)) return absent;
    if (!At(key).is_boolean()) return Invalid(key, "true or false");
    return At(key).get<bool>();
  }
  absl::StatusOr<std::string> Text(const char* key, const std::string& absent) const {
    if (!Has(key)) return absent;
    if (!At(key).is_string()) return Invalid(key, "a string");
    return At(key).get<std::string>();
  }
  absl::StatusOr<std::optional<int64_t>> TokenId(const char* key) const {
    if (!Has(key)) return std::optional<int64_t>();
    // Some configs list several ids here; the first is the one that text begins with.
    const json& value = At(key).is_array() && !At(key).empty() ? At(key)[0] : At(key);
    if (!IsTokenId(value)) return Invalid(key, "a token id");
    if (value < 0) return std::optional<int64_t>();
    return std::optional<int64_t>(value.get<int64_t>());
  }
  absl::StatusOr<std::vector<int64_t>> TokenIds(const char* key) const {
    std::vector<int64_t> ids;
    if (!Has(key)) return ids;
    const json list = At(key).is_array() ? At(key) : json::array({At(key)});
    for (const json& id : list) {
      if (!IsTokenId(id)) return Invalid(key, "a token id or a list of them");
      if (id >= 0) ids.push_back(id.get<int64_t>());
    }
    return ids;
  }

 private:
  const json& object_;
  std::string place_;
};

struct Family {
  const char* model_type;
  const char* architecture;
  // What the family's configuration class assumes where a key is absent.
  int64_t head_dim;  // 0: hidden_size / num_attention_heads
  int64_t max_position_embeddings;
};
constexpr Family kFamilies[] = {
    {"llama", "LlamaForCausalLM", 0, 2048},
    {"qwen2", "Qwen2ForCausalLM", 0, 32768},
    {"qwen3", "Qwen3ForCausalLM", 128, 32768},
};

absl::StatusOr<Family> FindFamily(const Reader& config, const std::string& place) {
  std::string architecture;
  if (config.Has("architectures")) {
    const json& list = config.At("architectures");
    if (!list.is_array() || list.empty() || !list[0].is_string()) {
      return config.Invalid("architectures", "a list of names");
    }
    architecture = list[0].get<std::string>();
  }
  ASSIGN_OR_RETURN(const std::string model_type, config.Text("model_type", ""));
  if (architecture.empty() && model_type.empty()) {
    return config.Invalid("architectures", "a list of names");
  }
  std::vector<std::string> known;
  for (const Family& family : kFamilies) {
    if (architecture.empty() ? model_type == family.model_type
                             : architecture == family.architecture) {
      return family;
    }
    known.push_back(family.architecture);
  }
  return config.Unsupported(architecture.empty() ? "model_type" : "architectures",
                            absl::StrJoin(known, ", "));
}

// transformers 5 writes "rope_parameters" with the base inside; older versions "rope_theta" beside
// an optional "rope_scaling".
absl::StatusOr<RopeSpec> ParseRope(const Reader& config, const std::string& place) {
  RopeSpec rope;
  ASSIGN_OR_RETURN(rope.theta, config.Positive("rope_theta", rope.theta));
  const char* key = config.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!config.Has(key)) return rope;
  if (!config.At(key).is_object()) return config.Invalid(key, "an object or null");
  const Reader scaling(config.At(key), absl::StrCat(place, ": ", key));
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

// Every layer must attend to all earlier tokens.
absl::Status RefuseSlidingWindow(const Reader& config, const ModelSpec& spec) {
  if (config.Has("layer_types")) {
    const json& types = config.At("layer_types");
    if (!types.is_array()) return config.Invalid("layer_types", "a list of names");
    for (const json& type : types) {
      if (type != "full_attention") return config.Unsupported("layer_types", "full_attention");
    }
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const bool in_use, config.Flag("use_sliding_window", false));
  if (!in_use || !config.Has("sliding_window")) return absl::OkStatus();
  ASSIGN_OR_RETURN(const double first_layer, config.Positive("max_window_layers", 28));
  if (first_layer >= static_cast<double>(spec.num_layers)) return absl::OkStatus();
  return config.Unsupported("use_sliding_window", "false");
}

}  // namespace

int64_t ModelSpec::num_parameters() const {
  const int64_t qkv = q_size() + 2 * kv_size();
  int64_t layer = 2 * hidden_size + qkv * hidden_size + hidden_size * q_size() +
                  3 * intermediate_size * hidden_size;
  if (qkv_bias) layer += qkv;
  if (output_bias) layer += hidden_size;
  if (mlp_bias) layer += 2 * intermediate_size + hidden_size;
  if (qk_norm) layer += 2 * head_dim;
  const int64_t embedding = vocab_size * hidden_size;
  const int64_t head = value_head ? hidden_size + 1 : tie_word_embeddings ? 0 : embedding;
  return num_layers * layer + hidden_size + embedding + head;
}

ModelSpec ValueModelSpec(ModelSpec policy) {
  policy.value_head = true;
  policy.tie_word_embeddings = false;
  return policy;
}

absl::StatusOr<ModelSpec> ParseModelSpec(const json& object, const std::string& place) {
  if (!object.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(place, ": expected a JSON object"));
  }
  const Reader config(object, place);
  ASSIGN_OR_RETURN(const Family family, FindFamily(config, place));

  ModelSpec spec;
  spec.architecture = family.architecture;
  ASSIGN_OR_RETURN(spec.vocab_size, config.Size("vocab_size", kMaxVocab));
  ASSIGN_OR_RETURN(spec.hidden_size, config.Size("hidden_size", kMaxWidth));
  ASSIGN_OR_RETURN(spec.intermediate_size, config.Size("intermediate_size", kMaxWidth));
  ASSIGN_OR_RETURN(spec.num_layers, config.Size("num_hidden_layers", kMaxLayers));
  ASSIGN_OR_RETURN(spec.num_heads, config.Size("num_attention_heads", kMaxHeads));
  ASSIGN_OR_RETURN(spec.num_kv_heads,
                   config.Size("num_key_value_heads", kMaxHeads, spec.num_heads));
  if (spec.num_heads % spec.num_kv_heads != 0) {
    return config.Invalid("num_key_value_heads",
                          absl::StrCat("a divisor of \"num_attention_heads\", ", spec.num_heads));
  }
  if (!config.Has("head_dim") && family.head_dim == 0 && spec.hidden_size % spec.num_heads != 0) {
    return config.Invalid("num_attention_heads",
                          absl::StrCat("a divisor of \"hidden_size\", ", spec.hidden_size,
                                       ", where \"head_dim\" is absent"));
  }
  ASSIGN_OR_RETURN(
      spec.head_dim,
      config.Size("head_dim", kMaxHeadDim,
                  family.head_dim != 0 ? family.head_dim : spec.hidden_size / spec.num_heads));
  if (spec.head_dim % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        place, ": \"head_dim\" must be even, for rotary embeddings; found ", spec.head_dim));
  }
  ASSIGN_OR_RETURN(
      spec.max_position_embeddings,
      config.Size("max_position_embeddings", kMaxPositions, family.max_position_embeddings));
  ASSIGN_OR_RETURN(spec.rms_norm_eps, config.Positive("rms_norm_eps", spec.rms_norm_eps));
  ASSIGN_OR_RETURN(spec.initializer_range,
                   config.Positive("initializer_range", spec.initializer_range));
  ASSIGN_OR_RETURN(spec.tie_word_embeddings, config.Flag("tie_word_embeddings", false));

  ASSIGN_OR_RETURN(const std::string activation, config.Text("hidden_act", "silu"));
  if (activation != "silu" && activation != "swish") {
    return config.Unsupported("hidden_act", "silu");
  }
  if (config.Has("quantization_config")) {
    return absl::UnimplementedError(absl::StrCat(
        place,
        ": \"quantization_config\": quantised checkpoints are not supported; export the "
        "model in float32, bfloat16 or float16"));
  }
  ASSIGN_OR_RETURN(spec.rope, ParseRope(config, place));
  RETURN_IF_ERROR(RefuseSlidingWindow(config, spec));

  if (family.model_type == std::string("qwen2")) {
    spec.qkv_bias = true;  // the family has no key for it
  } else {
    ASSIGN_OR_RETURN(spec.qkv_bias, config.Flag("attention_bias", false));
    spec.output_bias = spec.qkv_bias;
  }
  if (family.model_type == std::string("llama")) {
    ASSIGN_OR_RETURN(spec.mlp_bias, config.Flag("mlp_bias", false));
  }
  spec.qk_norm = family.model_type == std::string("qwen3");

  ASSIGN_OR_RETURN(spec.eos_token_ids, config.TokenIds("eos_token_id"));
  ASSIGN_OR_RETURN(spec.bos_token_id, config.TokenId("bos_token_id"));
  ASSIGN_OR_RETURN(spec.pad_token_id, config.TokenId("pad_token_id"));
  return spec;
}

}  // namespace tandem::model
