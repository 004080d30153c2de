// ExpertUse: how often tokens chose each expert, by layer. ExpertLoad counts the rows that were
// computed; this one counts every token as often as its weight says, a layer that is computed again
// once.
#ifndef TANDEM_COMMON_MODEL_EXPERT_USE_H_
#define TANDEM_COMMON_MODEL_EXPERT_USE_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "common/model/model_spec.h"

namespace tandem::model {

// Single-threaded.
class ExpertUse {
 public:
  // Sums are on `device`.
  ExpertUse(const ModelSpec& spec, at::Device device) {
    int64_t total = 0;
    for (const LayerSpec& layer : spec.layers) {
      first_.push_back(total);
      total += layer.experts.has_value() ? layer.experts->num_experts : 0;
    }
    first_.push_back(total);
    sums_ = at::zeros({total}, at::dtype(at::kDouble).device(device));
  }

  // token_weights: float32 [num_tokens]: how often each token counts.
  void Begin(at::Tensor token_weights) { token_weights_ = std::move(token_weights); }
  // experts: int64 [num_tokens, top_k].
  void Add(int64_t layer, const at::Tensor& experts) {
    const at::Tensor counted =
        token_weights_.to(at::kDouble).unsqueeze(1).expand(experts.sizes()).flatten();
    OfLayer(layer).index_add_(0, experts.flatten(), counted);
  }

  // float64, all layers one after another: to be added up over ranks.
  at::Tensor& sums() { return sums_; }
  // A view, [num_experts]; empty for a dense layer.
  at::Tensor OfLayer(int64_t layer) const {
    return sums_.narrow(0, first_[layer], first_[layer + 1] - first_[layer]);
  }
  void Clear() { sums_.zero_(); }

 private:
  std::vector<int64_t> first_;  // of each layer, in sums_
  at::Tensor token_weights_;
  at::Tensor sums_;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_EXPERT_USE_H_
