#include "common/model/layers/tensor_ops.h"

#include <ATen/ops/add.h>
#include <ATen/ops/stack.h>

#include <cmath>
#include <vector>

#include "common/model/grouped_linear.h"
#include "common/model/linear.h"
#include "common/model/router.h"
#include "common/model/swiglu.h"
#include "common/model/tensor_collectives.h"

namespace tandem::model {

std::optional<at::Tensor> TensorOps::Optional(int index) const {
  if (index < 0) return std::nullopt;
  return context_.params.Get(index);
}

ResidualNorm TensorOps::AddNorm(const Residual& in, int weight) {
  const at::Tensor& scale = context_.params.Get(weight);
  ResidualNorm out = AddRmsNorm(in.x, in.delta, scale, context_.eps);
  if (context_.recomputation != nullptr) {
    context_.recomputation->Add({out.normed},
                                [residual = out.residual.detach(), scale, eps = context_.eps] {
                                  return std::vector<at::Tensor>{RmsNorm(residual, scale, eps)};
                                });
  }
  return out;
}

at::Tensor TensorOps::Project(const at::Tensor& x, int weight, int bias) const {
  const ParameterProvider& params = context_.params;
  return Linear(x, params.Get(weight), Optional(bias), params.Packed(weight));
}

at::Tensor TensorOps::ColumnParallel(const at::Tensor& x, int weight, int bias, const char* tag) {
  // All ranks' rows contribute to the gradient of x.
  return Project(CopyToRanks(x, context_.tensor_group, tag), weight, bias);
}

at::Tensor TensorOps::RowParallel(const at::Tensor& x, int weight, int bias, const char* tag) {
  if (context_.tensor_group == nullptr) return Project(x, weight, bias);
  const at::Tensor sum = SumOverRanks(Project(x, weight, -1), context_.tensor_group, tag);
  return bias < 0 ? sum : at::add(sum, context_.params.Get(bias));
}

HeadRotation TensorOps::RotationOf(int q_norm, int k_norm) const {
  HeadRotation rotation{attention_.rotary, attention_.shape, Optional(q_norm), Optional(k_norm),
                        context_.eps};
  if (context_.tensor_group != nullptr && rotation.q_norm.has_value() &&
      rotation.k_norm.has_value()) {
    // All ranks' heads contribute to the gradients of these.
    const at::Tensor norms = CopyToRanks(at::stack({*rotation.q_norm, *rotation.k_norm}),
                                         context_.tensor_group, "q_norm and k_norm, backward");
    rotation.q_norm = norms[0];
    rotation.k_norm = norms[1];
  }
  return rotation;
}

at::Tensor TensorOps::Attend(const at::Tensor& qkv, int q_norm, int k_norm) {
  const HeadRotation rotation = RotationOf(q_norm, k_norm);
  AttentionParams params;
  params.scale = 1.0 / std::sqrt(static_cast<double>(attention_.spec.head_dim));
  params.window = attention_.spec.window;
  const int64_t layer = attention_.layer;
  if (context_.recomputation == nullptr) {
    return attention_.attention.ForwardProjected(layer, qkv, rotation, params);
  }
  const auto [q, k, v] = RotateQkv(qkv, rotation);
  context_.recomputation->Add({q, k}, [rotation, qkv = qkv.detach()] {
    const Qkv rotated = RotateQkv(qkv, rotation);
    return std::vector<at::Tensor>{rotated.q, rotated.k};
  });
  return attention_.attention.Forward(layer, q, k, v, params);
}

at::Tensor TensorOps::SwiGlu(const at::Tensor& gate_up) {
  const at::Tensor activated = model::SwiGlu(gate_up);
  if (context_.recomputation != nullptr) {
    context_.recomputation->Add({activated}, [gate_up = gate_up.detach()] {
      return std::vector<at::Tensor>{model::SwiGlu(gate_up)};
    });
  }
  return activated;
}

TensorOps::Routing TensorOps::Route(const at::Tensor& x, int router, const RoutingSpec& spec) {
  const ParameterProvider& params = context_.params;
  const at::Tensor& weight = params.Get(router);
  const at::Tensor logits = LinearInFloat32(x, weight, params.Packed(router));
  const at::Tensor experts = ChooseExperts(logits, spec.top_k);
  const at::Tensor weights = ExpertWeights(logits, experts, spec.normalize);
  return {weights, GroupByExpert(experts, weight.size(0))};
}

at::Tensor TensorOps::Dispatch(const at::Tensor& x, const Routing& routing) {
  // All ranks' parts of the experts contribute to the gradient of x.
  const at::Tensor rows =
      DispatchRows(CopyToRanks(x, context_.tensor_group, "experts, backward"), routing.rows);
  if (context_.recomputation != nullptr) {
    context_.recomputation->Add({rows}, [x = x.detach(), routed = routing.rows] {
      return std::vector<at::Tensor>{DispatchRows(x, routed)};
    });
  }
  return rows;
}

at::Tensor TensorOps::ExpertProducts(const at::Tensor& rows, const std::vector<int>& weights,
                                     const Routing& routing) {
  std::vector<at::Tensor> plain;
  std::vector<const kernels::PackedMatrix*> packed;
  for (const int weight : weights) {
    plain.push_back(context_.params.Get(weight));
    packed.push_back(context_.params.Packed(weight));
  }
  return GroupedLinear(rows, routing.rows, plain, packed);
}

at::Tensor TensorOps::Combine(const at::Tensor& results, const Routing& routing) {
  comm::ProcessGroup* const group = context_.tensor_group;
  // A rank's results are its part of a sum, and so is its gradient of the weights.
  const at::Tensor weights = CopyToRanks(routing.weights, group, "experts' weights, backward");
  return SumOverRanks(CombineRows(results, weights, routing.rows), group, "experts");
}

at::Tensor TensorOps::AddGated(const at::Tensor& routed, const at::Tensor& shared,
                               const at::Tensor& x, int gate) {
  const ParameterProvider& params = context_.params;
  const at::Tensor weights = GateWeights(LinearInFloat32(x, params.Get(gate), params.Packed(gate)));
  return Sum({routed, ScaleRows(shared, weights)});
}

}  // namespace tandem::model
