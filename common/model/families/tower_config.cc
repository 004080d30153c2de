#include "common/model/families/tower_config.h"

#include "absl/strings/str_cat.h"
#include "common/model/rotary_frequencies.h"
#include "common/status/status_macros.h"

namespace tandem::model {

using nlohmann::json;

absl::Status RequireValue(const ConfigReader& config, const char* key, const json& value) {
  if (!config.Has(key) || config.At(key) == value) return absl::OkStatus();
  return config.Unsupported(key, value.dump());
}

absl::Status RequireText(const ConfigReader& config, const char* key, const std::string& value) {
  ASSIGN_OR_RETURN(const std::string text, config.Text(key, value));
  return text == value ? absl::OkStatus() : config.Unsupported(key, value);
}

absl::Status ParseTowerHeads(const ConfigReader& config, const TowerHeads& heads, int64_t width,
                             AttentionSpec& attention) {
  ASSIGN_OR_RETURN(attention.num_heads, config.Size(heads.key, kMaxHeads, heads.absent));
  attention.num_kv_heads = attention.num_heads;
  attention.head_dim = width / attention.num_heads;
  if (attention.head_dim * attention.num_heads == width &&
      attention.head_dim % heads.multiple == 0 && attention.head_dim <= kMaxHeadDim) {
    return absl::OkStatus();
  }
  const std::string size = heads.multiple > 1 ? absl::StrCat("a multiple of ", heads.multiple,
                                                             " elements, at most ", kMaxHeadDim)
                                              : absl::StrCat("at most ", kMaxHeadDim, " elements");
  return config.Invalid(heads.key, absl::StrCat("a divisor of \"", heads.width_key, "\", ", width,
                                                ", into heads of ", size));
}

absl::Status ParseTowerRope(const ConfigReader& config, VisionSpec& vision) {
  constexpr const char* kKey = "rope_parameters";
  if (!config.Has(kKey)) return absl::OkStatus();
  if (!config.At(kKey).is_object()) return config.Invalid(kKey, "an object or null");
  const ConfigReader parameters(config.At(kKey), absl::StrCat(config.place(), ": ", kKey));
  RETURN_IF_ERROR(RequireText(parameters, "rope_type", "axial"));
  ASSIGN_OR_RETURN(vision.rope.theta, parameters.Positive("rope_theta", vision.rope.theta));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ImageTokenId(const ConfigReader& config, int64_t vocab_size,
                                     int64_t absent) {
  const char* const key = config.Has("image_token_index") ? "image_token_index" : "image_token_id";
  return config.Count(key, vocab_size - 1, absent);
}

absl::Status CheckRopes(const ConfigReader& config, const ModelSpec& spec) {
  const char* const key = config.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const json none = json::object();
  const ConfigReader scaling(config.Has(key) && config.At(key).is_object() ? config.At(key) : none,
                             absl::StrCat(config.place(), ": ", key));
  for (const RopeSpec& rope : spec.ropes) {
    if (!DependsOnLength(rope)) continue;
    return scaling.Unsupported(scaling.Has("rope_type") ? "rope_type" : "type",
                               "default, linear, llama3, yarn, for a model with a vision tower");
  }
  return absl::OkStatus();
}

}  // namespace tandem::model
