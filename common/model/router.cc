#include "common/model/router.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "common/model/cpu_dispatch.h"
#include "common/model/device_experts.h"
#include "common/model/eager_ops.h"
#include "common/model/kernel_function.h"
#include "common/model/optional_tensor.h"
#include "common/model/router_rows.h"
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

// Calls body(row_router, i) for each row.
template <typename Body>
void ForRoutedRows(const at::Tensor& logits, const Router& router, const Body& body) {
  const int64_t size = logits.size(1);
  const at::Tensor bias = ContiguousOrUndefined(router.correction_bias);
  ForRows(logits.size(0), size, [&](int64_t begin, int64_t end) {
    RowRouter rows(router.spec, size, DataOrNull<float>(bias));
    for (int64_t i = begin; i < end; ++i) body(rows, i);
  });
}

at::Tensor WeightsOf(const at::Tensor& logits, const at::Tensor& experts, const Router& router) {
  at::Tensor weights = EmptyTensor(experts.sizes(), logits.options().requires_grad(false));
  const int64_t size = logits.size(1);
  const int64_t top_k = experts.size(1);
  const float* const from = logits.const_data_ptr<float>();
  const int64_t* const chosen = experts.const_data_ptr<int64_t>();
  float* const to = weights.mutable_data_ptr<float>();
  ForRoutedRows(logits, router, [&](RowRouter& rows, int64_t i) {
    rows.Weigh(from + i * size, chosen + i * top_k, to + i * top_k);
  });
  return weights;
}

at::Tensor LogitGradients(const at::Tensor& logits, const at::Tensor& experts,
                          const at::Tensor& weights, const at::Tensor& grad, const Router& router) {
  const int64_t size = logits.size(1);
  const int64_t top_k = experts.size(1);
  at::Tensor grad_logits = at::empty_like(logits);
  const float* const from = logits.const_data_ptr<float>();
  const int64_t* const chosen = experts.const_data_ptr<int64_t>();
  const float* const weighed = weights.const_data_ptr<float>();
  const float* const given = grad.const_data_ptr<float>();
  float* const to = grad_logits.mutable_data_ptr<float>();
  ForRoutedRows(logits, router, [&](RowRouter& rows, int64_t i) {
    rows.WeighBackward(from + i * size, chosen + i * top_k, weighed + i * top_k, given + i * top_k,
                       to + i * size);
  });
  return grad_logits;
}

struct WeightsFunction : torch::autograd::Function<WeightsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits,
                            const at::Tensor& experts, const Router& router) {
    const at::Tensor weights = WeightsOf(logits, experts, router);
    ctx->save_for_backward({logits, experts, weights});
    const RoutingSpec& spec = router.spec;
    ctx->saved_data["top_k"] = spec.top_k;
    ctx->saved_data["normalize"] = spec.normalize;
    ctx->saved_data["score"] = static_cast<int64_t>(spec.score);
    ctx->saved_data["scale"] = spec.scale;
    ctx->saved_data["jitter"] = spec.jitter;
    return weights;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    // Without what matters to the choice alone.
    const Router router{{.top_k = ctx->saved_data["top_k"].toInt(),
                         .normalize = ctx->saved_data["normalize"].toBool(),
                         .score = static_cast<RoutingSpec::Score>(ctx->saved_data["score"].toInt()),
                         .scale = ctx->saved_data["scale"].toDouble(),
                         .jitter = ctx->saved_data["jitter"].toDouble()},
                        {}};
    return {LogitGradients(saved[0], saved[1], saved[2], grads[0].contiguous(), router),
            at::Tensor(), at::Tensor()};
  }
};

at::Tensor SigmoidsOf(const at::Tensor& logits) {
  at::Tensor out = EmptyTensor(logits.sizes(), logits.options().requires_grad(false));
  const float* const from = logits.const_data_ptr<float>();
  float* const to = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < logits.numel(); ++i) to[i] = SigmoidOf(from[i]);
  return out;
}

struct GateFunction : torch::autograd::Function<GateFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits) {
    const at::Tensor weights = SigmoidsOf(logits);
    ctx->save_for_backward({weights});
    return weights;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor weights = ctx->get_saved_variables()[0];
    return {grads[0] * weights * (1 - weights)};
  }
};

}  // namespace

at::Tensor ChooseExperts(const at::Tensor& logits, const Router& router) {
  if (device::RoutingTakes(logits, router.spec)) {
    return device::ChooseExperts(logits.detach(), router);
  }
  if (!RowsTake(logits)) return eager::ChooseExperts(logits.detach(), router);
  const at::Tensor rows = logits.detach().contiguous();
  const int64_t top_k = router.spec.top_k;
  at::Tensor experts = EmptyTensor({rows.size(0), top_k}, at::kLong);
  const int64_t size = rows.size(1);
  const float* const from = rows.const_data_ptr<float>();
  int64_t* const to = experts.mutable_data_ptr<int64_t>();
  ForRoutedRows(rows, router, [&](RowRouter& of_rows, int64_t i) {
    of_rows.Choose(from + i * size, to + i * top_k);
  });
  return experts;
}

at::Tensor ExpertWeights(const at::Tensor& logits, const at::Tensor& experts,
                         const Router& router) {
  if (device::RoutingTakes(logits, router.spec)) {
    if (!NeedsGraph({logits})) return device::ExpertWeights(logits, experts, router);
    return RecordedKernels(
        {logits},
        [=](const auto& in) {
          return variable_list{device::ExpertWeights(in[0], experts, router)};
        },
        [=](const auto& in) {
          return variable_list{eager::ExpertWeights(in[0], experts, router)};
        })[0];
  }
  if (!RowsTake(logits)) return eager::ExpertWeights(logits, experts, router);
  if (NeedsGraph({logits})) return WeightsFunction::apply(logits.contiguous(), experts, router);
  return WeightsOf(logits.contiguous(), experts, router);
}

at::Tensor GateWeights(const at::Tensor& logits) {
  if (!RowsTake(logits)) return at::sigmoid(logits);
  if (NeedsGraph({logits})) return GateFunction::apply(logits.contiguous());
  return SigmoidsOf(logits.contiguous());
}

}  // namespace tandem::model
