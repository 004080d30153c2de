#include "common/model/families/expert_config.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

// Of all layers. Larger numbers mean a corrupt file, and products of sizes could overflow.
constexpr int64_t kMaxExperts = int64_t{1} << 16;

// Returns the indices of layers that a list names.
absl::StatusOr<std::vector<int64_t>> LayerList(const ConfigReader& config, const char* key) {
  std::vector<int64_t> layers;
  if (!config.Has(key)) return layers;
  const nlohmann::json& list = config.At(key);
  if (!list.is_array()) return config.Invalid(key, "a list of layers");
  for (const nlohmann::json& layer : list) {
    if (!layer.is_number_integer() || layer < 0 || layer > kMaxLayers) {
      return config.Invalid(key, "a list of layers, counted from 0");
    }
    layers.push_back(layer.get<int64_t>());
  }
  return layers;
}

// Reads the number of experts, which transformers 5 writes as "num_local_experts" for some families
// that have it as "num_experts" on the Hub, and how many a token reaches.
absl::StatusOr<ExpertSpec> ParseExperts(const ConfigReader& config, int64_t num_experts,
                                        int64_t top_k, int64_t num_layers) {
  ExpertSpec experts;
  const char* key = config.Has("num_local_experts") ? "num_local_experts" : "num_experts";
  ASSIGN_OR_RETURN(experts.num_experts, config.Count(key, kMaxExperts, num_experts));
  if (experts.num_experts == 0) return experts;
  if (experts.num_experts * num_layers > kMaxExperts) {
    return config.Invalid(key, absl::StrCat("at most ", kMaxExperts / num_layers, " in each of ",
                                            num_layers, " layers"));
  }
  constexpr char kTopK[] = "num_experts_per_tok";
  ASSIGN_OR_RETURN(experts.routing.top_k, config.Size(kTopK, kMaxExperts, top_k));
  if (experts.routing.top_k > experts.num_experts) {
    return config.Invalid(kTopK, absl::StrCat("at most \"", key, "\", ", experts.num_experts));
  }
  return experts;
}

}  // namespace

absl::StatusOr<ModelSpec> ParseQwenExperts(const ConfigReader& config,
                                           const ExpertDefaults& defaults, ModelSpec dense) {
  // Both families have patterns of their own for windows.
  ASSIGN_OR_RETURN(const bool has_windows, config.Flag("use_sliding_window", false));
  if (has_windows) return config.Unsupported("use_sliding_window", "false");
  ASSIGN_OR_RETURN(ExpertSpec experts,
                   ParseExperts(config, defaults.num_experts, defaults.top_k, dense.num_layers()));
  if (experts.num_experts == 0) return dense;
  ASSIGN_OR_RETURN(experts.intermediate_size,
                   config.Size("moe_intermediate_size", kMaxWidth, defaults.intermediate_size));
  if (defaults.shared_intermediate_size > 0) {
    ASSIGN_OR_RETURN(experts.shared_intermediate_size,
                     config.Size("shared_expert_intermediate_size", kMaxWidth,
                                 defaults.shared_intermediate_size));
  }
  ASSIGN_OR_RETURN(experts.routing.normalize, config.Flag("norm_topk_prob", false));
  ASSIGN_OR_RETURN(const int64_t step, config.Size("decoder_sparse_step", kMaxLayers, 1));
  ASSIGN_OR_RETURN(const std::vector<int64_t> dense_layers, LayerList(config, "mlp_only_layers"));
  for (int64_t i = 0; i < dense.num_layers(); ++i) {
    const bool stays = std::find(dense_layers.begin(), dense_layers.end(), i) != dense_layers.end();
    if (!stays && (i + 1) % step == 0) dense.layers[i].experts = experts;
  }
  return dense;
}

absl::StatusOr<ModelSpec> ParseMixtralExperts(const ConfigReader& config, ModelSpec dense) {
  ASSIGN_OR_RETURN(ExpertSpec experts,
                   ParseExperts(config, /*num_experts=*/8, /*top_k=*/2, dense.num_layers()));
  if (experts.num_experts == 0) return config.Invalid("num_local_experts", "1 or more");
  experts.intermediate_size = dense.layers.front().feed_forward.intermediate_size;
  experts.routing.normalize = true;
  experts.names = {.block = "block_sparse_moe.", .gate = "w1", .up = "w3", .down = "w2"};
  for (LayerSpec& layer : dense.layers) layer.experts = experts;
  return dense;
}

}  // namespace tandem::model
