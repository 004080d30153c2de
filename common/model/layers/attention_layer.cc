#include "common/model/layers/attention_layer.h"

#include <ATen/ops/stack.h>

#include <cmath>
#include <vector>

#include "common/model/layers/projection.h"
#include "common/model/tensor_collectives.h"

namespace tandem::model {

AttentionLayer::AttentionLayer(const AttentionSpec& spec, const AttentionParameters& parameters,
                               int64_t layer, double eps, TensorParallel parallel)
    : at_(parameters), layer_(layer), window_(spec.window), eps_(eps) {
  const AttentionPart part = PartOf(spec, parallel);
  shape_ = {part.heads.size(), part.kv_heads.size(), spec.head_dim};
}

HeadRotation AttentionLayer::RotationOf(const LayerContext& context, const Rotary& rotary) const {
  HeadRotation rotation{rotary, shape_, OptionalParameter(context.params, at_.q_norm),
                        OptionalParameter(context.params, at_.k_norm), eps_};
  if (context.tensor_group != nullptr && rotation.q_norm.has_value() &&
      rotation.k_norm.has_value()) {
    // All ranks' heads contribute to the gradients of these.
    const at::Tensor norms = CopyToRanks(at::stack({*rotation.q_norm, *rotation.k_norm}),
                                         context.tensor_group, "q_norm and k_norm, backward");
    rotation.q_norm = norms[0];
    rotation.k_norm = norms[1];
  }
  return rotation;
}

at::Tensor AttentionLayer::Forward(const LayerContext& context, const at::Tensor& normed,
                                   const Rotary& rotary, Attention& attention) const {
  const at::Tensor qkv =
      ColumnParallel(context, normed, at_.qkv_weight, at_.qkv_bias, "attention, backward");
  const HeadRotation rotation = RotationOf(context, rotary);
  AttentionParams params;
  params.scale = 1.0 / std::sqrt(static_cast<double>(shape_.head_dim));
  params.window = window_;
  at::Tensor attended;
  if (context.recomputation == nullptr) {
    attended = attention.ForwardProjected(layer_, qkv, rotation, params);
  } else {
    const auto [q, k, v] = RotateQkv(qkv, rotation);
    context.recomputation->Add({q, k}, [rotation, qkv = qkv.detach()] {
      const Qkv rotated = RotateQkv(qkv, rotation);
      return std::vector<at::Tensor>{rotated.q, rotated.k};
    });
    attended = attention.Forward(layer_, q, k, v, params);
  }
  return RowParallel(context, attended, at_.o_weight, at_.o_bias, "attention");
}

}  // namespace tandem::model
