#include "common/model/router.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/model/cpu_dispatch.h"
#include "common/model/eager_ops.h"
#include "common/model/step_memory.h"

namespace tandem::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// ATen's exponentials have other bits at the end of a tensor than in its middle; these are computed
// one by one.
bool RowsTake(const at::Tensor& logits) {
  return logits.is_cpu() && logits.scalar_type() == at::kFloat;
}

float Rank(float logit) {
  return std::isnan(logit) ? -std::numeric_limits<float>::infinity() : logit;
}

void ChooseRow(const float* logits, int64_t num_experts, int64_t top_k, int64_t* chosen) {
  int64_t count = 0;  // chosen[0, count): by descending logit
  for (int64_t e = 0; e < num_experts; ++e) {
    const float rank = Rank(logits[e]);
    if (count == top_k && !(rank > Rank(logits[chosen[count - 1]]))) continue;
    int64_t place = count < top_k ? count++ : count - 1;
    for (; place > 0 && rank > Rank(logits[chosen[place - 1]]); --place) {
      chosen[place] = chosen[place - 1];
    }
    chosen[place] = e;
  }
  std::sort(chosen, chosen + count);
}

// The softmax of a row: weight(e) = exp(logits[e] - largest) / sum.
struct RowSoftmax {
  float largest = -std::numeric_limits<float>::infinity();
  float sum = 0;

  RowSoftmax(const float* logits, int64_t num_experts) {
    for (int64_t e = 0; e < num_experts; ++e) largest = std::max(largest, Rank(logits[e]));
    for (int64_t e = 0; e < num_experts; ++e) sum += std::exp(logits[e] - largest);
  }
  float Share(float logit) const { return std::exp(logit - largest) / sum; }
};

void WeighRow(const float* logits, int64_t num_experts, const int64_t* chosen, int64_t top_k,
              bool normalize, float* weights) {
  RowSoftmax softmax(logits, num_experts);
  // A NaN of an expert that was not chosen shows here.
  if (normalize && !std::isnan(softmax.sum)) {
    softmax.sum = 0;
    for (int64_t j = 0; j < top_k; ++j)
      softmax.sum += std::exp(logits[chosen[j]] - softmax.largest);
  }
  for (int64_t j = 0; j < top_k; ++j) weights[j] = softmax.Share(logits[chosen[j]]);
}

// With p the softmax over the experts that count, all or the chosen ones, and g the gradients of
// the weights: grad = p (g - sum of p g), where g is 0 for experts that were not chosen.
void WeighRowBackward(const float* logits, int64_t num_experts, const int64_t* chosen,
                      int64_t top_k, bool normalize, const float* weights, const float* grad,
                      float* grad_logits) {
  float sum = 0;
  for (int64_t j = 0; j < top_k; ++j) sum += weights[j] * grad[j];
  if (normalize) {
    std::fill(grad_logits, grad_logits + num_experts, 0.0f);
  } else {
    const RowSoftmax softmax(logits, num_experts);
    for (int64_t e = 0; e < num_experts; ++e) grad_logits[e] = -softmax.Share(logits[e]) * sum;
  }
  for (int64_t j = 0; j < top_k; ++j) grad_logits[chosen[j]] = weights[j] * (grad[j] - sum);
}

at::Tensor WeightsOf(const at::Tensor& logits, const at::Tensor& experts, bool normalize) {
  at::Tensor weights = EmptyTensor(experts.sizes(), logits.options().requires_grad(false));
  const int64_t size = logits.size(1);
  const int64_t top_k = experts.size(1);
  const float* const from = logits.const_data_ptr<float>();
  const int64_t* const chosen = experts.const_data_ptr<int64_t>();
  float* const to = weights.mutable_data_ptr<float>();
  ForRows(logits.size(0), size, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      WeighRow(from + i * size, size, chosen + i * top_k, top_k, normalize, to + i * top_k);
    }
  });
  return weights;
}

struct WeightsFunction : torch::autograd::Function<WeightsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits,
                            const at::Tensor& experts, bool normalize) {
    const at::Tensor weights = WeightsOf(logits, experts, normalize);
    ctx->save_for_backward({logits, experts, weights});
    ctx->saved_data["normalize"] = normalize;
    return weights;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& logits = saved[0];
    const int64_t size = logits.size(1);
    const int64_t top_k = saved[1].size(1);
    const bool normalize = ctx->saved_data["normalize"].toBool();
    const at::Tensor grad = grads[0].contiguous();
    at::Tensor grad_logits = at::empty_like(logits);
    const float* const from = logits.const_data_ptr<float>();
    const int64_t* const chosen = saved[1].const_data_ptr<int64_t>();
    const float* const weights = saved[2].const_data_ptr<float>();
    const float* const given = grad.const_data_ptr<float>();
    float* const to = grad_logits.mutable_data_ptr<float>();
    ForRows(logits.size(0), size, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        WeighRowBackward(from + i * size, size, chosen + i * top_k, top_k, normalize,
                         weights + i * top_k, given + i * top_k, to + i * size);
      }
    });
    return {grad_logits, at::Tensor(), at::Tensor()};
  }
};

at::Tensor SigmoidOf(const at::Tensor& logits) {
  at::Tensor out = EmptyTensor(logits.sizes(), logits.options().requires_grad(false));
  const float* const from = logits.const_data_ptr<float>();
  float* const to = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < logits.numel(); ++i) to[i] = 1.0f / (1.0f + std::exp(-from[i]));
  return out;
}

struct GateFunction : torch::autograd::Function<GateFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits) {
    const at::Tensor weights = SigmoidOf(logits);
    ctx->save_for_backward({weights});
    return weights;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor weights = ctx->get_saved_variables()[0];
    return {grads[0] * weights * (1 - weights)};
  }
};

}  // namespace

at::Tensor ChooseExperts(const at::Tensor& logits, int64_t top_k) {
  if (!RowsTake(logits)) return eager::ChooseExperts(logits.detach(), top_k);
  const at::Tensor rows = logits.detach().contiguous();
  at::Tensor experts = EmptyTensor({rows.size(0), top_k}, at::kLong);
  const int64_t size = rows.size(1);
  const float* const from = rows.const_data_ptr<float>();
  int64_t* const to = experts.mutable_data_ptr<int64_t>();
  ForRows(rows.size(0), size, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ChooseRow(from + i * size, size, top_k, to + i * top_k);
  });
  return experts;
}

at::Tensor ExpertWeights(const at::Tensor& logits, const at::Tensor& experts, bool normalize) {
  if (!RowsTake(logits)) return eager::ExpertWeights(logits, experts, normalize);
  if (NeedsGraph({logits})) {
    return WeightsFunction::apply(logits.contiguous(), experts, normalize);
  }
  return WeightsOf(logits.contiguous(), experts, normalize);
}

at::Tensor GateWeights(const at::Tensor& logits) {
  if (!RowsTake(logits)) return at::sigmoid(logits);
  if (NeedsGraph({logits})) return GateFunction::apply(logits.contiguous());
  return SigmoidOf(logits.contiguous());
}

}  // namespace tandem::model
