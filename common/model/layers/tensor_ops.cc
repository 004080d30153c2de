#include "common/model/layers/tensor_ops.h"

#include <ATen/ops/add.h>
#include <ATen/ops/stack.h>

#include <cmath>
#include <vector>

#include "common/model/linear.h"
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

}  // namespace tandem::model
