// Reads the keys of rotary embeddings from config.json, in both of its forms: "rope_parameters" of
// transformers 5, flat or with one object for each layer type, and the older "rope_theta",
// "rope_scaling", "partial_rotary_factor" and the like.
//
//   const RotaryDefaults defaults{.head_dim = 128, .max_position_embeddings = 4096};
//   ASSIGN_OR_RETURN(RopeSpec rope, ParseRotary(config, defaults));
#ifndef TANDEM_COMMON_MODEL_FAMILIES_ROTARY_CONFIG_H_
#define TANDEM_COMMON_MODEL_FAMILIES_ROTARY_CONFIG_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/model/families/config_reader.h"
#include "common/model/layers/rope_spec.h"

namespace tandem::model {

// What the model has besides these keys, and what the family's configuration class says where they
// are missing.
struct RotaryDefaults {
  int64_t head_dim = 0;                 // of the layers
  int64_t max_position_embeddings = 0;  // stands for a missing original length
  double theta = 10000.0;
  // Base of the layer type "sliding_attention" in the older form, where "rope_local_base_freq" is
  // missing; 0: that of the others.
  double sliding_theta = 0.0;
  // A share of each head rotates: that of the keys, or this one without them. Otherwise whole heads
  // rotate, and keys that state another share are refused.
  bool has_share = false;
  double partial_rotary_factor = 1.0;
  bool has_alpha = false;                        // a dynamic rope may have "alpha"
  int64_t original_max_position_embeddings = 0;  // 0: as the keys say
  int64_t rotary_dim = 0;  // elements of a head that rotate, whatever the keys say; 0: as these say
  bool interleaved = false;   // no key says so
  bool has_sections = false;  // the type may be "mrope"
};

// `layer_type` ("full_attention", "sliding_attention") chooses the object of a "rope_parameters"
// with one for each; empty for models whose layers rotate alike. Scalings of the older form count
// for the full layers alone, as in all families that have layer types.
//
// Base: "rope_theta", or GPT-NeoX's "rotary_emb_base". Share of a head: "partial_rotary_factor" or
// "rotary_pct". Scaling: "rope_type" or "type"; Phi-3's "su" and
// "yarn" with lists of factors are longrope, and HunYuan's "dynamic" with "alpha" is a larger base.
// Errors name key and value: INVALID_ARGUMENT for one that no model has, UNIMPLEMENTED for another
// rope type.
absl::StatusOr<RopeSpec> ParseRotary(const ConfigReader& config, const RotaryDefaults& defaults,
                                     std::string_view layer_type = "");

// Returns the magnitude of YaRN's paper for "mscale_all_dim" of the rope parameters, whose square
// DeepSeek's families have in the scale of scores; 1 without that key or without a rope type other
// than default.
absl::StatusOr<double> ScoreMagnitude(const ConfigReader& config);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_ROTARY_CONFIG_H_
