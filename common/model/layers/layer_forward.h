// The forward pass of a layer, written once over the operations `Ops`:
//   - TensorOps (tensor_ops.h) computes it, in trainer and rollout;
//   - plan::CountedOps (tools/tandem/plan/counted_ops.h) takes sizes in place of tensors, for the memory
//     plan. Locals live as long there as here, so the plan sees what a pass holds.
//
//   TensorOps ops(context, attention);
//   Residual out = LayerForward(ops, spec.layers[i], table.layer(i), {x, {}});
//
// Ops declares Tensor, Residual {x, delta} (the stream, and what is still to be added to it),
// Normed {residual, normed} and Routing (the experts of every token, and their weights); parameters
// are indices into the parameter table, -1 for none. kMayCacheLatents says whether it has operations
// for caches of latents.
#ifndef TANDEM_COMMON_MODEL_LAYERS_LAYER_FORWARD_H_
#define TANDEM_COMMON_MODEL_LAYERS_LAYER_FORWARD_H_

#include "common/model/model_spec.h"
#include "common/model/parameter_table.h"

namespace tandem::model {

// normed: [num_tokens, hidden]. Returns the queries of this rank's heads, [num_tokens, q_size].
template <typename Ops>
typename Ops::Tensor LatentQueries(Ops& ops, const LatentSpec& spec, const LatentParameters& at,
                                   const typename Ops::Tensor& normed) {
  if (spec.q_rank == 0) {
    return ops.ColumnParallel(normed, at.q_weight, -1, "queries, backward");
  }
  const auto latent =
      ops.Normalize(ops.Replicated(normed, at.q_a_weight, at.q_a_bias), spec.norm, at.q_norm);
  return ops.ColumnParallel(latent, at.q_b_weight, -1, "latent of queries, backward");
}

// Latent attention (latent_spec.h), up to the output projection. Every rank makes the whole latent,
// and the keys and values of its own heads.
template <typename Ops>
typename Ops::Tensor LatentAttended(Ops& ops, const LatentSpec& spec, const AttentionParameters& at,
                                    const typename Ops::Tensor& normed) {
  const auto q = LatentQueries(ops, spec, at.latent, normed);
  const auto down = ops.Replicated(normed, at.latent.kv_a_weight, at.latent.kv_a_bias);
  const auto latent =
      ops.Normalize(ops.Columns(down, 0, spec.kv_rank), spec.norm, at.latent.kv_norm);
  const auto shared = ops.Columns(down, spec.kv_rank, spec.rope_dim);
  if constexpr (Ops::kMayCacheLatents) {
    if (ops.CachesLatents()) return ops.AttendToLatents(q, latent, shared, at.latent);
  }
  const auto kv = ops.ColumnParallel(latent, at.latent.kv_b_weight, -1, "latent, backward");
  return ops.AttendLatent(q, shared, kv);
}

// Linear attention (delta_spec.h). normed, result: [num_tokens, hidden].
template <typename Ops>
typename Ops::Tensor DeltaForward(Ops& ops, const DeltaParameters& at,
                                  const typename Ops::Tensor& normed) {
  const auto projected = ops.ColumnParallel(normed, at.in_weight, -1, "linear attention, backward");
  const auto attended = ops.AttendLinearly(projected, at);
  return ops.RowParallel(attended, at.out_weight, -1, "linear attention");
}

// normed, result: [num_tokens, hidden].
template <typename Ops>
typename Ops::Tensor AttentionForward(Ops& ops, const AttentionSpec& spec,
                                      const AttentionParameters& at,
                                      const typename Ops::Tensor& normed) {
  if (spec.delta.has_value()) return DeltaForward(ops, at.delta, normed);
  if (spec.latent.has_value()) {
    const auto attended = LatentAttended(ops, *spec.latent, at, normed);
    return ops.RowParallel(attended, at.o_weight, at.o_bias, "attention");
  }
  const auto qkv = ops.ColumnParallel(normed, at.qkv_weight, at.qkv_bias, "attention, backward");
  // Attention is linear in the values, so a factor of theirs is one of its result.
  const auto attended = ops.Scale(
      spec.reads_other_kv() ? ops.AttendToOthers(qkv, at) : ops.Attend(qkv, at), spec.value_scale);
  if (!spec.output_gate) return ops.RowParallel(attended, at.o_weight, at.o_bias, "attention");
  const auto gate =
      ops.ColumnParallel(normed, at.gate_weight, at.gate_bias, "attention's gate, backward");
  const auto gated = ops.Gate(attended, gate);
  return ops.RowParallel(gated, at.o_weight, at.o_bias, "attention");
}

// normed, result: [num_tokens, hidden].
template <typename Ops>
typename Ops::Tensor FeedForwardForward(Ops& ops, const FeedForwardSpec& spec,
                                        const FeedForwardParameters& at,
                                        const typename Ops::Tensor& normed) {
  const auto gate_up =  // [num_tokens, 2 intermediate]; [num_tokens, intermediate] without a gate
      ops.ColumnParallel(normed, at.gate_up_weight, at.gate_up_bias, "feed-forward, backward");
  const auto activated = ops.Activate(gate_up, spec, at.alphas);
  return ops.RowParallel(activated, at.down_weight, at.down_bias, "feed-forward");
}

// normed, result: [num_tokens, hidden]. Each expert computes the rows of the tokens that the router
// sends it. routed: what the router reads.
template <typename Ops>
typename Ops::Tensor ExpertsForward(Ops& ops, const ExpertSpec& spec, const ExpertParameters& at,
                                    const typename Ops::Tensor& normed,
                                    const typename Ops::Tensor& routed) {
  const auto routing = ops.Route(routed, spec.routing, at.router);
  const auto rows = ops.Dispatch(normed, routing);  // [num_tokens * top_k, hidden], by expert
  const auto gate_up = ops.ExpertColumnParallel(rows, at.gate_up, routing);
  const auto activated = ops.Activate(gate_up, spec.Expert(), /*alphas=*/-1);
  const auto results = ops.ExpertRowParallel(activated, at.down, routing);
  const auto combined = ops.Combine(results, routing);
  if (!at.shared.has_value()) return combined;
  const auto shared = FeedForwardForward(ops, spec.Shared(), *at.shared, normed);
  if (!spec.shared_gate) return ops.Sum({combined, shared});
  return ops.AddGated(combined, shared, normed, at.shared_gate);
}

// What a sub-layer reads: the norm of the stream, or the stream itself.
template <typename Ops>
typename Ops::Normed BeforeSubLayer(Ops& ops, const LayerSpec& spec,
                                    const typename Ops::Residual& in, const NormParameters& norm) {
  if (spec.norm_placement != NormPlacement::kAfter) return ops.AddNorm(in, spec.norm, norm);
  const auto sum = ops.Sum(in);
  return {sum, sum};
}

// What a sub-layer's result adds to the stream. scale: of LayerSpec::residual_scales.
template <typename Ops>
typename Ops::Tensor AfterSubLayer(Ops& ops, const LayerSpec& spec,
                                   const typename Ops::Tensor& result, const NormParameters& norm,
                                   int scale) {
  if (spec.residual_scales) return ops.ScaleElements(result, scale);
  if (spec.norm_placement == NormPlacement::kBefore) {
    return ops.Scale(result, spec.residual_multiplier);
  }
  return ops.Scale(ops.Normalize(result, spec.norm, norm), spec.residual_multiplier);
}

// What the router reads of `stream` [num_tokens, hidden]: its own norm, or, without one, `normed`.
template <typename Ops>
typename Ops::Tensor RouterInput(Ops& ops, const RoutingSpec& spec, const RouterParameters& at,
                                 const typename Ops::Tensor& stream,
                                 const typename Ops::Tensor& normed) {
  return spec.norm.has_value() ? ops.AddNorm({stream, {}}, *spec.norm, at.norm).normed : normed;
}

// A dense feed-forward and experts beside it (ExpertSpec::beside_dense).
template <typename Ops>
typename Ops::Tensor DenseAndExperts(Ops& ops, const LayerSpec& spec, const LayerParameters& at,
                                     const typename Ops::Normed& in) {
  const auto dense =
      ops.Normalize(FeedForwardForward(ops, spec.feed_forward, at.feed_forward, in.normed),
                    spec.norm, at.beside.after_dense);
  const auto normed = ops.AddNorm({in.residual, {}}, spec.norm, at.beside.before_experts).normed;
  const auto routed =
      RouterInput(ops, spec.experts->routing, at.experts->router, in.residual, normed);
  const auto experts = ExpertsForward(ops, *spec.experts, *at.experts, normed, routed);
  return ops.Sum({dense, ops.Normalize(experts, spec.norm, at.beside.after_experts)});
}

// in: what BeforeSubLayer() returns.
template <typename Ops>
typename Ops::Tensor DenseOrExperts(Ops& ops, const LayerSpec& spec, const LayerParameters& at,
                                    const typename Ops::Normed& in) {
  if (!at.experts.has_value()) {
    return FeedForwardForward(ops, spec.feed_forward, at.feed_forward, in.normed);
  }
  if (spec.experts->beside_dense) return DenseAndExperts(ops, spec, at, in);
  return ExpertsForward(
      ops, *spec.experts, *at.experts, in.normed,
      RouterInput(ops, spec.experts->routing, at.experts->router, in.residual, in.normed));
}

// Adds to the stream what the layer makes of its own input. Every rank computes all of it.
template <typename Ops>
typename Ops::Residual AddInput(Ops& ops, const LayerSpec& spec, const InputGateParameters& at,
                                const typename Ops::Residual& in) {
  const auto stream = ops.Sum(in);
  const auto gate = ops.Replicated(stream, at.gate_weight, -1);  // [num_tokens, size]
  const auto gated = ops.GateInput(gate, *spec.input_gate);
  const auto projected = ops.Replicated(gated, at.projection_weight, -1);
  return {stream, ops.Normalize(projected, spec.norm, at.norm)};
}

// Attention and the feed-forward layer, each added to the stream: one after the other, or, in a
// parallel layer, both computed from the layer's input.
template <typename Ops>
typename Ops::Residual SubLayers(Ops& ops, const LayerSpec& spec, const LayerParameters& at,
                                 const typename Ops::Residual& in) {
  const auto first = BeforeSubLayer(ops, spec, in, at.attention_norm);
  const auto attended =
      AfterSubLayer(ops, spec, AttentionForward(ops, spec.attention, at.attention, first.normed),
                    at.after_attention_norm, at.attention_scale);
  if (spec.parallel) {
    const auto second = spec.shared_norm
                            ? first
                            : BeforeSubLayer(ops, spec, {first.residual, {}}, at.feed_forward_norm);
    const auto fed = AfterSubLayer(ops, spec, DenseOrExperts(ops, spec, at, second),
                                   at.after_feed_forward_norm, at.feed_forward_scale);
    return {first.residual, ops.Sum({attended, fed})};
  }
  const auto second = BeforeSubLayer(ops, spec, {first.residual, attended}, at.feed_forward_norm);
  const auto fed = AfterSubLayer(ops, spec, DenseOrExperts(ops, spec, at, second),
                                 at.after_feed_forward_norm, at.feed_forward_scale);
  return {second.residual, fed};
}

// What the layer yields, times its number.
template <typename Ops>
typename Ops::Residual Scaled(Ops& ops, const LayerParameters& at,
                              const typename Ops::Residual& out) {
  if (at.output_scalar < 0) return out;
  return {ops.ScaleElements(ops.Sum(out), at.output_scalar), {}};
}

template <typename Ops>
typename Ops::Residual LayerForward(Ops& ops, const LayerSpec& spec, const LayerParameters& at,
                                    const typename Ops::Residual& in) {
  if (!spec.input_gate.has_value()) return Scaled(ops, at, SubLayers(ops, spec, at, in));
  return Scaled(ops, at, AddInput(ops, spec, at.input_gate, SubLayers(ops, spec, at, in)));
}

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LAYERS_LAYER_FORWARD_H_
