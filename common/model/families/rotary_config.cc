#include "common/model/families/rotary_config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

using nlohmann::json;

// transformers' default of a missing original length.
absl::StatusOr<int64_t> OriginalPositions(const ConfigReader& config, const ConfigReader& scaling,
                                          const RotaryDefaults& defaults) {
  constexpr const char* kKey = "original_max_position_embeddings";
  if (defaults.original_max_position_embeddings > 0) {
    return defaults.original_max_position_embeddings;
  }
  if (config.Has(kKey)) return config.Size(kKey, kMaxPositions);
  if (!scaling.Has(kKey) && defaults.max_position_embeddings == 0) {
    return scaling.Invalid(kKey, "a number of tokens");
  }
  return scaling.Size(kKey, kMaxPositions, defaults.max_position_embeddings);
}

absl::StatusOr<double> Factor(const ConfigReader& scaling) {
  if (!scaling.Has("factor")) return scaling.Invalid("factor", "a positive number");
  return scaling.Positive("factor", 1.0);
}

absl::Status ParseLlama3(const ConfigReader& config, const ConfigReader& scaling,
                         const RotaryDefaults& defaults, RopeSpec& rope) {
  Llama3RopeScaling& llama3 = rope.llama3.emplace();
  ASSIGN_OR_RETURN(llama3.factor, scaling.Positive("factor", llama3.factor));
  ASSIGN_OR_RETURN(llama3.low_freq_factor,
                   scaling.Positive("low_freq_factor", llama3.low_freq_factor));
  ASSIGN_OR_RETURN(llama3.high_freq_factor,
                   scaling.Positive("high_freq_factor", llama3.high_freq_factor));
  ASSIGN_OR_RETURN(llama3.original_max_position_embeddings,
                   OriginalPositions(config, scaling, defaults));
  if (llama3.high_freq_factor <= llama3.low_freq_factor) {
    return scaling.Invalid("high_freq_factor", "greater than \"low_freq_factor\"");
  }
  return absl::OkStatus();
}

absl::Status ParseDynamic(const ConfigReader& scaling, const RotaryDefaults& defaults,
                          int64_t rotary_dim, RopeSpec& rope) {
  if (rotary_dim <= 2) {
    return scaling.Invalid("rope_type", "one that heads with 2 rotating elements can have");
  }
  if (scaling.Has("alpha") && !defaults.has_alpha) {
    return scaling.Unsupported("alpha", "none, for this family");
  }
  if (scaling.Has("alpha")) {
    ASSIGN_OR_RETURN(const double alpha, scaling.Positive("alpha", 1.0));
    rope.theta *=
        std::pow(alpha, static_cast<double>(rotary_dim) / static_cast<double>(rotary_dim - 2));
    return absl::OkStatus();
  }
  DynamicRopeScaling& dynamic = rope.dynamic.emplace();
  ASSIGN_OR_RETURN(dynamic.factor, Factor(scaling));
  if (defaults.max_position_embeddings == 0) {
    return scaling.Invalid("rope_type", "one for models without \"max_position_embeddings\"");
  }
  dynamic.original_max_position_embeddings = defaults.max_position_embeddings;
  return absl::OkStatus();
}

// The attention factor that YaRN's paper proposes.
double YarnMagnitude(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

absl::Status ParseYarn(const ConfigReader& config, const ConfigReader& scaling,
                       const RotaryDefaults& defaults, RopeSpec& rope) {
  YarnRopeScaling& yarn = rope.yarn.emplace();
  ASSIGN_OR_RETURN(yarn.original_max_position_embeddings,
                   OriginalPositions(config, scaling, defaults));
  ASSIGN_OR_RETURN(
      yarn.factor,
      scaling.Positive("factor", static_cast<double>(defaults.max_position_embeddings) /
                                     static_cast<double>(yarn.original_max_position_embeddings)));
  if (!(yarn.factor > 0)) return scaling.Invalid("factor", "a positive number");
  ASSIGN_OR_RETURN(yarn.beta_fast, scaling.Positive("beta_fast", yarn.beta_fast));
  ASSIGN_OR_RETURN(yarn.beta_slow, scaling.Positive("beta_slow", yarn.beta_slow));
  ASSIGN_OR_RETURN(yarn.truncate, scaling.Flag("truncate", yarn.truncate));
  if (rope.theta == 1.0) return config.Invalid("rope_theta", "other than 1, for yarn");
  ASSIGN_OR_RETURN(const double mscale, scaling.NonNegative("mscale", 0.0));
  ASSIGN_OR_RETURN(const double of_all, scaling.NonNegative("mscale_all_dim", 0.0));
  const double magnitude = mscale > 0 && of_all > 0 ? YarnMagnitude(yarn.factor, mscale) /
                                                          YarnMagnitude(yarn.factor, of_all)
                                                    : YarnMagnitude(yarn.factor, 1.0);
  ASSIGN_OR_RETURN(rope.attention_factor, scaling.Positive("attention_factor", magnitude));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> Factors(const ConfigReader& scaling, const char* key,
                                            int64_t count) {
  const auto invalid = [&] {
    return scaling.Invalid(key, absl::StrCat("a list of ", count,
                                             " positive numbers, one for each pair that rotates"));
  };
  if (!scaling.Has(key) || !scaling.At(key).is_array() ||
      static_cast<int64_t>(scaling.At(key).size()) != count) {
    return invalid();
  }
  std::vector<double> factors;
  for (const json& value : scaling.At(key)) {
    if (!value.is_number()) return invalid();
    factors.push_back(value.get<double>());
    if (!(factors.back() > 0) || !std::isfinite(factors.back())) return invalid();
  }
  return factors;
}

absl::Status ParseLongRope(const ConfigReader& config, const ConfigReader& scaling,
                           const RotaryDefaults& defaults, int64_t rotary_dim, RopeSpec& rope) {
  LongRopeScaling& longrope = rope.longrope.emplace();
  ASSIGN_OR_RETURN(longrope.short_factor, Factors(scaling, "short_factor", rotary_dim / 2));
  ASSIGN_OR_RETURN(longrope.long_factor, Factors(scaling, "long_factor", rotary_dim / 2));
  ASSIGN_OR_RETURN(longrope.original_max_position_embeddings,
                   OriginalPositions(config, scaling, defaults));
  const auto original = static_cast<double>(longrope.original_max_position_embeddings);
  ASSIGN_OR_RETURN(
      const double factor,
      scaling.Positive("factor", static_cast<double>(defaults.max_position_embeddings) / original));
  const double magnitude = factor <= 1.0 || original <= 1.0
                               ? 1.0
                               : std::sqrt(1.0 + std::log(factor) / std::log(original));
  ASSIGN_OR_RETURN(const double both, scaling.Positive("attention_factor", magnitude));
  // Phi-MoE has one for each.
  ASSIGN_OR_RETURN(longrope.short_mscale, scaling.Positive("short_mscale", both));
  ASSIGN_OR_RETURN(longrope.long_mscale, scaling.Positive("long_mscale", both));
  return absl::OkStatus();
}

const char* TypeKey(const ConfigReader& scaling) {
  return scaling.Has("rope_type") ? "rope_type" : "type";
}

absl::Status ParseScaling(const ConfigReader& config, const ConfigReader& scaling,
                          const RotaryDefaults& defaults, RopeSpec& rope) {
  const char* const type_key = TypeKey(scaling);
  ASSIGN_OR_RETURN(const std::string type, scaling.Text(type_key, "default"));
  const int64_t rotary_dim = rope.rotary_dim > 0 ? rope.rotary_dim : defaults.head_dim;
  // Qwen2-VL's older name of a default rope whose frequencies have sections (row_vision.h).
  if (type == "default" || (type == "mrope" && defaults.has_sections)) return absl::OkStatus();
  if (type == "linear") {
    ASSIGN_OR_RETURN(rope.linear_factor, Factor(scaling));
    return absl::OkStatus();
  }
  if (type == "llama3") return ParseLlama3(config, scaling, defaults, rope);
  if (type == "dynamic") return ParseDynamic(scaling, defaults, rotary_dim, rope);
  if (type == "longrope" || type == "su" || (type == "yarn" && scaling.Has("short_factor"))) {
    return ParseLongRope(config, scaling, defaults, rotary_dim, rope);
  }
  if (type == "yarn") return ParseYarn(config, scaling, defaults, rope);
  return scaling.Unsupported(type_key,
                             "default, linear, proportional, dynamic, llama3, yarn, longrope");
}

// Whole heads turn, by frequencies of which a share is not 0.
absl::Status ParseProportional(const ConfigReader& config, const ConfigReader& scaling,
                               int64_t head_dim, RopeSpec& rope) {
  constexpr const char* kKey = "partial_rotary_factor";
  const ConfigReader& place = scaling.Has(kKey) ? scaling : config;
  ASSIGN_OR_RETURN(const double share, place.Positive(kKey, 1.0));
  const double turning = std::floor(share * static_cast<double>(head_dim) / 2.0);
  if (share > 1.0 || turning < 1.0) {
    return place.Invalid(kKey, absl::StrCat("a share of at most 1 that lets 2 or more of a head's ",
                                            head_dim, " elements rotate"));
  }
  const auto count = static_cast<int64_t>(turning);
  rope.num_turning = 2 * count == head_dim ? 0 : count;
  ASSIGN_OR_RETURN(rope.linear_factor, scaling.Positive("factor", 1.0));
  return absl::OkStatus();
}

// Reads the elements that rotate from `scaling`, then from `config`, whose keys older forms use.
absl::StatusOr<int64_t> ParseRotaryDim(const ConfigReader& config, const ConfigReader& scaling,
                                       const RotaryDefaults& defaults) {
  const int64_t head_dim = defaults.head_dim;
  int64_t rotary_dim = 0;
  const char* key = "partial_rotary_factor";
  const ConfigReader* place = &scaling;
  if (defaults.rotary_dim > 0 || !scaling.Has(key)) {
    place = &config;
    if (defaults.rotary_dim > 0) {
      key = "rotary_dim";
    } else if (!config.Has(key) && config.Has("rotary_pct")) {
      key = "rotary_pct";
    }
  }
  if (defaults.rotary_dim > 0) {
    rotary_dim = defaults.rotary_dim;
  } else {
    ASSIGN_OR_RETURN(const double share, place->Positive(key, defaults.partial_rotary_factor));
    if (!defaults.has_share && share != 1.0) {
      return place->Unsupported(key, "1, for this family");
    }
    rotary_dim = static_cast<int64_t>(static_cast<double>(head_dim) * std::min(share, 1e6));
  }
  if (rotary_dim < 2 || rotary_dim > head_dim || rotary_dim % 2 != 0) {
    return place->Invalid(key, absl::StrCat("such that an even number of a head's ", head_dim,
                                            " elements rotates, at least 2, not ", rotary_dim));
  }
  return rotary_dim == head_dim ? 0 : rotary_dim;
}

}  // namespace

absl::StatusOr<RopeSpec> ParseRotary(const ConfigReader& config, const RotaryDefaults& defaults,
                                     std::string_view layer_type) {
  const bool is_sliding = layer_type == "sliding_attention";
  double theta = defaults.theta;
  std::string key = config.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const json none = json::object();
  const json* object = &none;
  bool in_newer_form = false;
  bool by_type = false;
  if (config.Has(key.c_str())) {
    object = &config.At(key.c_str());
    if (!object->is_object()) return config.Invalid(key.c_str(), "an object or null");
    in_newer_form = key == "rope_parameters";
    const std::string name(layer_type);
    by_type = object->contains("full_attention") || object->contains("sliding_attention");
    if (by_type && layer_type.empty()) {
      return config.Unsupported(key.c_str(), "one object for all layers");
    }
    if (by_type) {
      key = absl::StrCat(key, ": ", name);
      if (!object->contains(name) || (*object)[name].is_null()) {
        object = &none;
      } else {
        object = &(*object)[name];
      }
      if (!object->is_object()) {
        return absl::InvalidArgumentError(absl::StrCat(
            config.place(), ": ", key, " must be an object; found ", object->dump().substr(0, 80)));
      }
    }
  }
  if (is_sliding && !in_newer_form) object = &none;  // scalings are for the full layers
  const ConfigReader scaling(*object, absl::StrCat(config.place(), ": ", key));

  RopeSpec rope;
  rope.interleaved = defaults.interleaved;
  if (config.Has("rope_theta")) {
    ASSIGN_OR_RETURN(theta, config.Positive("rope_theta", theta));
  } else {
    ASSIGN_OR_RETURN(theta, config.Positive("rotary_emb_base", theta));
  }
  if (is_sliding) {
    ASSIGN_OR_RETURN(theta,
                     config.Positive("rope_local_base_freq",
                                     defaults.sliding_theta > 0 ? defaults.sliding_theta : theta));
  }
  ASSIGN_OR_RETURN(rope.theta, scaling.Positive("rope_theta", theta));
  ASSIGN_OR_RETURN(const std::string type, scaling.Text(TypeKey(scaling), "default"));
  if (type == "proportional" && defaults.rotary_dim == 0) {
    RETURN_IF_ERROR(ParseProportional(by_type ? ConfigReader(none, config.place()) : config,
                                      scaling, defaults.head_dim, rope));
    return rope;
  }
  ASSIGN_OR_RETURN(rope.rotary_dim, ParseRotaryDim(config, scaling, defaults));
  if (by_type && scaling.Has("truncate") && scaling.At("truncate") == false) {
    return scaling.Unsupported("truncate", "true where layers have parameters by their type");
  }
  // The file's own keys complete parameters that are for all layers only.
  const ConfigReader nothing(none, config.place());
  RETURN_IF_ERROR(ParseScaling(by_type ? nothing : config, scaling, defaults, rope));
  if (rope.dynamic.has_value() && (rope.rotary_dim == 2 || defaults.head_dim == 2)) {
    return config.Invalid("head_dim", "such that 4 or more elements rotate, for a dynamic rope");
  }
  return rope;
}

absl::StatusOr<double> ScoreMagnitude(const ConfigReader& config) {
  const char* const key = config.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!config.Has(key) || !config.At(key).is_object()) return 1.0;
  const ConfigReader scaling(config.At(key), absl::StrCat(config.place(), ": ", key));
  ASSIGN_OR_RETURN(const std::string type, scaling.Text(TypeKey(scaling), "default"));
  ASSIGN_OR_RETURN(const double of_all, scaling.NonNegative("mscale_all_dim", 0.0));
  if (type == "default" || of_all == 0.0) return 1.0;
  ASSIGN_OR_RETURN(const double factor, Factor(scaling));
  return YarnMagnitude(factor, of_all);
}

}  // namespace tandem::model
