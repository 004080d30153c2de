// Parses the part of config.json that dense families share: grouped-query attention with rotary
// embeddings, and a SwiGLU feed-forward layer, the same in every layer.
#ifndef TANDEM_COMMON_MODEL_FAMILIES_DENSE_CONFIG_H_
#define TANDEM_COMMON_MODEL_FAMILIES_DENSE_CONFIG_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/model/families/config_reader.h"
#include "common/model/model_spec.h"

namespace tandem::model {

// Defaults of the family's configuration class for missing keys.
struct DenseDefaults {
  int64_t head_dim = 0;  // 0: hidden_size / num_attention_heads
  int64_t max_position_embeddings = 0;
  int64_t sliding_window = 0;  // 0: the keys for windows must not be in use
  double rope_theta = 10000.0;
  double rms_norm_eps = 1e-6;
};

// Returns the model; each of its layers is `layer` with the config's sizes and sliding windows. The
// family sets its layers' other properties: biases, norms of q and k.
absl::StatusOr<ModelSpec> ParseDenseConfig(const ConfigReader& config,
                                           const DenseDefaults& defaults, LayerSpec layer);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_DENSE_CONFIG_H_
