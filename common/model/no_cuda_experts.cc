// Implements device_experts.h for builds without CUDA: nothing is taken, so the rest is never called.
#include <cstdlib>

#include "common/model/device_experts.h"

namespace tandem::model::device {

bool RoutingTakes(const at::Tensor& logits, const RoutingSpec& spec) { return false; }

at::Tensor ChooseExperts(const at::Tensor& logits, const Router& router) { std::abort(); }

at::Tensor ExpertWeights(const at::Tensor& logits, const at::Tensor& experts,
                         const Router& router) {
  std::abort();
}

bool GroupingTakes(const at::Tensor& experts) { return false; }

ExpertRows GroupByExpert(const at::Tensor& experts, int64_t num_experts) { std::abort(); }

at::Tensor SumRows(const at::Tensor& rows, const at::Tensor& places, const at::Tensor& weights) {
  std::abort();
}

std::pair<at::Tensor, at::Tensor> SumRowsBackward(const at::Tensor& grad, const at::Tensor& rows,
                                                  const at::Tensor& places,
                                                  const at::Tensor& weights) {
  std::abort();
}

at::Tensor GroupedProduct(const at::Tensor& x, const at::Tensor& first,
                          const std::vector<at::Tensor>& weights,
                          const std::vector<at::Tensor>& biases, bool has_others) {
  std::abort();
}

at::Tensor WeightsForGroupedGradients(const at::Tensor& x, const at::Tensor& grad,
                                      const std::vector<at::Tensor>& weights) {
  return {};
}

at::Tensor GroupedInputGradient(const at::Tensor& grad, const at::Tensor& first,
                                const at::Tensor& weights) {
  std::abort();
}

at::Tensor GroupedWeightGradient(const at::Tensor& grad, const at::Tensor& x,
                                 const at::Tensor& first) {
  std::abort();
}

}  // namespace tandem::model::device
