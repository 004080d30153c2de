#include "common/model/layers/tensor_ops.h"

#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/stack.h>

#include <cmath>
#include <vector>

#include "common/model/absorbed_heads.h"
#include "common/model/activation.h"
#include "common/model/grouped_linear.h"
#include "common/model/linear.h"
#include "common/model/norm_across_ranks.h"
#include "common/model/output_gate.h"
#include "common/model/router.h"
#include "common/model/tensor_collectives.h"

namespace tandem::model {

std::optional<at::Tensor> TensorOps::Optional(int index) const {
  if (index < 0) return std::nullopt;
  return context_.params.Get(index);
}

Norm NormOf(const ParameterProvider& params, const NormSpec& spec, const NormParameters& norm) {
  return {spec, params.GetOrUndefined(norm.weight), params.GetOrUndefined(norm.bias)};
}

ResidualNorm TensorOps::AddNorm(const Residual& in, const NormSpec& spec,
                                const NormParameters& norm) {
  const Norm of = NormOf(context_.params, spec, norm);
  ResidualNorm out = model::AddNorm(in.x, in.delta, of);
  if (context_.recomputation != nullptr) {
    context_.recomputation->Add({out.normed}, [residual = out.residual.detach(), of] {
      return std::vector<at::Tensor>{model::Normalize(residual, of)};
    });
  }
  return out;
}

// Adding the result to the stream saves nothing, so there is nothing to recompute.
at::Tensor TensorOps::Normalize(const at::Tensor& x, const NormSpec& spec,
                                const NormParameters& norm) {
  return model::Normalize(x, NormOf(context_.params, spec, norm));
}

at::Tensor TensorOps::Sum(const Residual& in) { return model::Sum(in); }

at::Tensor TensorOps::Scale(const at::Tensor& x, double factor) {
  return factor == 1.0 ? x : at::mul(x, factor);
}

at::Tensor TensorOps::ScaleElements(const at::Tensor& x, int scale) {
  return at::mul(x, context_.params.Get(scale));
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

TensorParallel TensorOps::Parallel() const {
  if (context_.tensor_group == nullptr) return {};
  return {context_.tensor_group->rank(), context_.tensor_group->size()};
}

HeadRotation TensorOps::RotationOf(const AttentionParameters& at) const {
  const AttentionSpec& spec = attention_.spec;
  HeadRotation rotation;
  if (spec.rope >= 0) rotation.angles = attention_.rotary.ropes[spec.rope];
  rotation.shape = attention_.shape;
  rotation.norm = spec.qk_norm;
  rotation.value_norm = spec.value_norm;
  if (spec.query_position_scale.has_value()) {
    rotation.query_scale = attention_.rotary.query_scales[attention_.layer];
  }
  const auto tensors = [this](const NormParameters& norm) {
    return NormTensors{context_.params.GetOrUndefined(norm.weight),
                       context_.params.GetOrUndefined(norm.bias)};
  };
  rotation.q_norm = tensors(at.q_norm);
  rotation.k_norm = tensors(at.k_norm);
  if (context_.tensor_group == nullptr || !spec.qk_norm.has_value() ||
      spec.qk_norm->over != QkNormSpec::Over::kHead) {
    return rotation;
  }
  // All ranks' heads contribute to the gradients of these.
  std::vector<at::Tensor*> shared;
  std::vector<at::Tensor> stacked;
  for (NormTensors* norm : {&rotation.q_norm, &rotation.k_norm}) {
    for (at::Tensor* tensor : {&norm->weight, &norm->bias}) {
      if (!tensor->defined()) continue;
      shared.push_back(tensor);
      stacked.push_back(*tensor);
    }
  }
  if (shared.empty()) return rotation;
  const at::Tensor norms =
      CopyToRanks(at::stack(stacked), context_.tensor_group, "q_norm and k_norm, backward");
  for (size_t i = 0; i < shared.size(); ++i) *shared[i] = norms[static_cast<int64_t>(i)];
  return rotation;
}

AttentionParams TensorOps::ParamsOf(const AttentionParameters& at) const {
  const AttentionSpec& spec = attention_.spec;
  AttentionParams params;
  params.scale = spec.ScoreScale();
  params.softcap = spec.softcap;
  params.window = spec.window;
  params.sinks = Optional(at.sinks);
  params.alibi = {spec.alibi_scale, spec.num_heads, PartOf(spec, Parallel()).heads.begin};
  return params;
}

at::Tensor TensorOps::Limited(const at::Tensor& qkv) const {
  const double most = attention_.spec.clip_qkv;
  return most > 0 ? at::clamp(qkv, -most, most) : qkv;
}

at::Tensor TensorOps::Attend(const at::Tensor& projected, const AttentionParameters& at) {
  const AttentionSpec& spec = attention_.spec;
  HeadRotation rotation = RotationOf(at);
  const AttentionParams params = ParamsOf(at);
  at::Tensor qkv = Limited(projected);
  if (spec.values_are_keys) {
    const int64_t size = attention_.shape.v_size();
    qkv = at::cat({qkv, qkv.narrow(1, qkv.size(1) - size, size)}, 1);
  }
  if (context_.tensor_group != nullptr && spec.qk_norm.has_value() &&
      spec.qk_norm->over == QkNormSpec::Over::kAllHeads) {
    qkv = NormAcrossRanks(qkv, rotation, spec, *context_.tensor_group);
    rotation.norm.reset();
  }
  const int64_t layer = attention_.layer;
  at::Tensor* const made_kv = context_.carried.made_kv;
  if (context_.recomputation == nullptr && made_kv == nullptr) {
    return attention_.attention.ForwardProjected(layer, qkv, rotation, params);
  }
  const auto [q, k, v] = RotateQkv(qkv, rotation);
  if (context_.recomputation != nullptr) {
    // Values that are not normed lie in the projection.
    const bool keeps_values = !rotation.value_norm.has_value();
    context_.recomputation->Add(keeps_values ? std::vector{q, k} : std::vector{q, k, v},
                                [rotation, keeps_values, qkv = qkv.detach()] {
                                  const Qkv rotated = RotateQkv(qkv, rotation);
                                  return keeps_values
                                             ? std::vector{rotated.q, rotated.k}
                                             : std::vector{rotated.q, rotated.k, rotated.v};
                                });
  }
  // A copy, so that neither queries nor the projection stay for as long as other layers read it.
  if (made_kv != nullptr) *made_kv = at::cat({k.flatten(1), v.flatten(1)}, 1);
  return attention_.attention.Forward(layer, q, k, v, params);
}

at::Tensor TensorOps::AttendToOthers(const at::Tensor& queries, const AttentionParameters& at) {
  const HeadRotation rotation = RotationOf(at);
  const AttentionParams params = ParamsOf(at);
  const at::Tensor limited = Limited(queries);
  const at::Tensor q = RotateQkv(limited, rotation).q;
  if (attention_.attention.KeepsKeys()) {
    return attention_.attention.ForwardQueries(attention_.spec.kv_layer, q, params);
  }
  if (context_.recomputation != nullptr) {
    context_.recomputation->Add({q}, [rotation, limited = limited.detach()] {
      return std::vector<at::Tensor>{RotateQkv(limited, rotation).q};
    });
  }
  const AttentionSpec& spec = attention_.spec;
  const at::Tensor& kv = context_.carried.kv;  // [num_tokens, heads * (head_dim + value_dim)]
  const int64_t heads = kv.size(1) / (spec.head_dim + spec.value_dim());
  // At once: the gradients of both are then put together in one tensor.
  const std::vector<at::Tensor> parts =
      kv.split_with_sizes({heads * spec.head_dim, heads * spec.value_dim()}, 1);
  return attention_.attention.Forward(attention_.layer, q,
                                      parts[0].unflatten(1, {heads, spec.head_dim}),
                                      parts[1].unflatten(1, {heads, spec.value_dim()}), params);
}

at::Tensor TensorOps::Gate(const at::Tensor& attended, const at::Tensor& gate) {
  const at::Tensor gated = GateBySigmoid(attended, gate);
  if (context_.recomputation != nullptr) {
    context_.recomputation->Add({gated}, [attended = attended.detach(), gate = gate.detach()] {
      return std::vector<at::Tensor>{GateBySigmoid(attended, gate)};
    });
  }
  return gated;
}

at::Tensor TensorOps::AttendLinearly(const at::Tensor& projected, const DeltaParameters& at) {
  const ParameterProvider& params = context_.params;
  // All ranks' heads contribute to the gradient of the norm.
  const at::Tensor norm = CopyToRanks(params.Get(at.norm.weight), context_.tensor_group,
                                      "norm of linear attention, backward");
  return attention_.attention.ForwardDelta(attention_.layer,
                                           PartOf(*attention_.spec.delta, Parallel()),
                                           {projected, params.Get(at.convolution_weight),
                                            params.Get(at.a_log), params.Get(at.dt_bias), norm});
}

at::Tensor TensorOps::Replicated(const at::Tensor& x, int weight, int bias) {
  return Project(x, weight, bias);
}

at::Tensor TensorOps::Columns(const at::Tensor& x, int64_t begin, int64_t size) {
  return x.narrow(1, begin, size).contiguous();
}

LatentShape TensorOps::ShapeOfLatent() const {
  const AttentionSpec& spec = attention_.spec;
  return {attention_.shape.num_heads, spec.nope_dim(), spec.latent->rope_dim, spec.value_dim()};
}

RotaryAngles TensorOps::AnglesOfLayer() const {
  const int rope = attention_.spec.rope;
  return rope >= 0 ? attention_.rotary.ropes[rope] : RotaryAngles();
}

at::Tensor TensorOps::AttendToLatents(const at::Tensor& q, const at::Tensor& latent,
                                      const at::Tensor& shared, const LatentParameters& at) {
  const at::Tensor& up = context_.params.Get(at.kv_b_weight);
  const LatentShape shape = ShapeOfLatent();
  const AbsorbedHeads heads = AbsorbQueries(q, latent, shared, up, shape, AnglesOfLayer());
  const at::Tensor attended =
      attention_.attention.ForwardLatents(attention_.layer, heads.q, heads.latents, ParamsOf({}));
  return ExpandAttended(attended, up, shape);
}

at::Tensor TensorOps::AttendLatent(const at::Tensor& q, const at::Tensor& shared,
                                   const at::Tensor& kv) {
  // All ranks' heads contribute to the gradient of the shared part.
  const at::Tensor of_all = CopyToRanks(shared, context_.tensor_group, "shared keys, backward");
  const Qkv heads = JoinLatentHeads({q, of_all, kv}, ShapeOfLatent(), AnglesOfLayer());
  return attention_.attention.Forward(attention_.layer, heads.q, heads.k, heads.v, ParamsOf({}));
}

at::Tensor TensorOps::Activate(const at::Tensor& gate_up, const FeedForwardSpec& spec, int alphas) {
  ActivationFunction function{spec.activation, spec.gated, {}};
  if (alphas >= 0) {
    // All ranks' parts of the layer contribute to the gradient of these.
    function.alphas =
        CopyToRanks(context_.params.Get(alphas), context_.tensor_group, "activation, backward");
  }
  const at::Tensor activated = model::Activate(gate_up, function);
  if (context_.recomputation != nullptr) {
    context_.recomputation->Add({activated}, [gate_up = gate_up.detach(), function] {
      return std::vector<at::Tensor>{model::Activate(gate_up, function)};
    });
  }
  return activated;
}

// The feed-forward layer's function of a gate and what it gates.
at::Tensor TensorOps::GateInput(const at::Tensor& gate, const InputGateSpec& spec) {
  const FeedForwardSpec gated{.activation = spec.activation, .gated = true};
  return Activate(at::cat({gate, context_.carried.input}, 1), gated, /*alphas=*/-1);
}

TensorOps::Routing TensorOps::Route(const at::Tensor& x, const RoutingSpec& spec,
                                    const RouterParameters& at) {
  const ParameterProvider& params = context_.params;
  const at::Tensor& weight = params.Get(at.weight);
  at::Tensor logits = LinearInFloat32(x, weight, params.Packed(at.weight));
  const at::ScalarType wide = logits.scalar_type();
  if (at.bias >= 0) logits = at::add(logits, params.Get(at.bias).to(wide));
  if (spec.logit_scale != 1.0) logits = at::mul(logits, spec.logit_scale);
  Router router{spec, {}};
  if (at.correction_bias >= 0) {
    router.correction_bias = params.Get(at.correction_bias).detach().to(wide);
  }
  const RouterPass pass = context_.routers != nullptr ? *context_.routers : RouterPass();
  at::Tensor experts = ChooseExperts(logits, router);
  if (pass.replay != nullptr) experts = pass.replay->Replace(attention_.layer, experts);
  if (pass.recorder != nullptr) pass.recorder->Record(attention_.layer, experts);
  if (pass.use != nullptr && !pass.is_recomputed) pass.use->Add(attention_.layer, experts);
  if (pass.losses != nullptr) {
    if (!pass.is_recomputed) pass.losses->Add(logits, experts);
    logits = pass.losses->Attach(logits);
  }
  at::Tensor weights = ExpertWeights(logits, experts, router);
  if (at.expert_scales >= 0) {
    const at::Tensor scales = params.Get(at.expert_scales).to(wide);
    weights = at::mul(weights, scales.index_select(0, experts.flatten()).view_as(weights));
  }
  Routing routing{weights, spec.weigh_inputs, GroupByExpert(experts, weight.size(0)), std::nullopt,
                  std::nullopt};
  if (pass.load != nullptr) pass.load->Add(attention_.layer, routing.rows);
  if (SplitsSameTokens()) {
    routing.own = OwnRows(routing.rows, PartOf(weight.size(0), Parallel()));
  } else if (context_.expert_group != nullptr) {
    routing.exchange = PlanExchange(routing.rows, *context_.expert_group);
  }
  return routing;
}

at::Tensor TensorOps::Dispatch(const at::Tensor& x, const Routing& routing) {
  // All ranks' parts of the experts contribute to the gradient of x.
  const at::Tensor of_all = CopyToRanks(x, context_.tensor_group, "experts, backward");
  if (routing.weigh_inputs) return DispatchWeighed(of_all, routing);
  if (routing.own.has_value()) return DispatchOwnRows(of_all, *routing.own);
  const at::Tensor rows = DispatchRows(of_all, routing.rows);
  // What has travelled is kept for the backward pass, like the result of a product.
  if (routing.exchange.has_value()) return ToExperts(rows, *routing.exchange);
  if (context_.recomputation != nullptr) {
    context_.recomputation->Add({rows}, [x = x.detach(), routed = routing.rows] {
      return std::vector<at::Tensor>{DispatchRows(x, routed)};
    });
  }
  return rows;
}

at::Tensor TensorOps::DispatchWeighed(const at::Tensor& x, const Routing& routing) {
  const at::Tensor weights = WeightsByRow(
      CopyToRanks(routing.weights, context_.tensor_group, "experts' weights, backward"),
      routing.rows);
  if (routing.own.has_value()) {
    const at::Tensor own = DispatchOwnRows(x, *routing.own);
    return ScaleRows(own, weights.narrow(0, routing.own->begin, own.size(0)));
  }
  const at::Tensor rows = DispatchRows(x, routing.rows);
  const at::Tensor weighed = ScaleRows(rows, weights);
  if (routing.exchange.has_value()) return ToExperts(weighed, *routing.exchange);
  if (context_.recomputation != nullptr) {
    context_.recomputation->Add(
        {rows, weighed}, [x = x.detach(), weights = weights.detach(), routed = routing.rows] {
          const at::Tensor again = DispatchRows(x, routed);
          return std::vector<at::Tensor>{again, ScaleRows(again, weights)};
        });
  }
  return weighed;
}

at::Tensor TensorOps::ExpertProducts(const at::Tensor& rows, const ExpertMatrices& at,
                                     const std::vector<at::Tensor>& biases,
                                     const Routing& routing) const {
  std::vector<at::Tensor> weights;
  std::vector<const kernels::PackedMatrix*> packed;
  for (const int weight : at.weights) {
    weights.push_back(context_.params.Get(weight));
    packed.push_back(context_.params.Packed(weight));
  }
  return GroupedLinear(rows, routing.computed(), weights, biases, packed);
}

at::Tensor TensorOps::ExpertColumnParallel(const at::Tensor& rows, const ExpertMatrices& at,
                                           const Routing& routing) {
  std::vector<at::Tensor> biases;
  for (const int bias : at.biases) biases.push_back(context_.params.Get(bias));
  return ExpertProducts(rows, at, biases, routing);
}

at::Tensor TensorOps::ExpertRowParallel(const at::Tensor& rows, const ExpertMatrices& at,
                                        const Routing& routing) {
  std::vector<at::Tensor> biases;
  for (const int bias : at.biases) biases.push_back(context_.params.Get(bias));
  if (!biases.empty() && IsSplit(context_.tensor_group) && !routing.own.has_value()) {
    // Ranks other than the first add zeros, so that all have the same graph.
    const double factor = context_.tensor_group->rank() == 0 ? 1.0 : 0.0;
    biases =
        at::mul(CopyToRanks(at::stack(biases), context_.tensor_group, "experts' biases, backward"),
                factor)
            .unbind();
  }
  return ExpertProducts(rows, at, biases, routing);
}

at::Tensor TensorOps::Combine(const at::Tensor& results, const Routing& routing) {
  comm::ProcessGroup* const group = context_.tensor_group;
  const at::Tensor by_expert =
      routing.exchange.has_value() ? FromExperts(results, *routing.exchange)
      : routing.own.has_value()    ? AmongAllRows(results, *routing.own, routing.rows)
                                   : results;
  if (routing.weigh_inputs) {
    return SumOverRanks(SumRowsOfTokens(by_expert, routing.rows), group, "experts");
  }
  // A rank's results are its part of a sum, and so is its gradient of the weights.
  const at::Tensor weights = CopyToRanks(routing.weights, group, "experts' weights, backward");
  return SumOverRanks(CombineRows(by_expert, weights, routing.rows), group, "experts");
}

at::Tensor TensorOps::AddGated(const at::Tensor& routed, const at::Tensor& shared,
                               const at::Tensor& x, int gate) {
  const ParameterProvider& params = context_.params;
  const at::Tensor weights = GateWeights(LinearInFloat32(x, params.Get(gate), params.Packed(gate)));
  return model::Sum({routed, ScaleRows(shared, weights)});
}

}  // namespace tandem::model
