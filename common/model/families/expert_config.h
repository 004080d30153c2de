// Parses the keys of config.json by which families describe their experts.
#ifndef TANDEM_COMMON_MODEL_FAMILIES_EXPERT_CONFIG_H_
#define TANDEM_COMMON_MODEL_FAMILIES_EXPERT_CONFIG_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/model/families/config_reader.h"
#include "common/model/model_spec.h"

namespace tandem::model {

// Values of the family's configuration class for missing keys of ParseQwenExperts().
struct ExpertDefaults {
  int64_t num_experts = 0;
  int64_t top_k = 0;
  int64_t intermediate_size = 0;         // of an expert
  int64_t shared_intermediate_size = 0;  // 0: the family has no shared expert
};

// Returns `dense`, with experts in the layers that "decoder_sparse_step" and "mlp_only_layers" do
// not leave dense: the families Qwen2-MoE and Qwen3-MoE.
absl::StatusOr<ModelSpec> ParseQwenExperts(const ConfigReader& config,
                                           const ExpertDefaults& defaults, ModelSpec dense);

// Returns `dense`, with Mixtral's experts in all layers.
absl::StatusOr<ModelSpec> ParseMixtralExperts(const ConfigReader& config, ModelSpec dense);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_EXPERT_CONFIG_H_
