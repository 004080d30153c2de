// The forward pass of a layer, written once over the operations `Ops`:
//   - TensorOps (tensor_ops.h) computes it, in trainer and rollout;
//   - plan::CountedOps (tools/tandem/plan/counted_ops.h) takes sizes in place of tensors, for the memory
//     plan. Locals live as long there as here, so the plan sees what a pass holds.
//
//   TensorOps ops(context, attention);
//   Residual out = LayerForward(ops, table.layer(i), {x, {}});
//
// Ops declares Tensor, Residual {x, delta} (the stream, and what is still to be added to it),
// Normed {residual, normed} and Routing (the experts of every token, and their weights); parameters
// are indices into the parameter table, -1 for none.
#ifndef TANDEM_COMMON_MODEL_LAYERS_LAYER_FORWARD_H_
#define TANDEM_COMMON_MODEL_LAYERS_LAYER_FORWARD_H_

#include "common/model/parameter_table.h"

namespace tandem::model {

// normed, result: [num_tokens, hidden].
template <typename Ops>
typename Ops::Tensor AttentionForward(Ops& ops, const AttentionParameters& at,
                                      const typename Ops::Tensor& normed) {
  const auto qkv = ops.ColumnParallel(normed, at.qkv_weight, at.qkv_bias, "attention, backward");
  const auto attended = ops.Attend(qkv, at.q_norm, at.k_norm);
  return ops.RowParallel(attended, at.o_weight, at.o_bias, "attention");
}

// normed, result: [num_tokens, hidden].
template <typename Ops>
typename Ops::Tensor FeedForwardForward(Ops& ops, const FeedForwardParameters& at,
                                        const typename Ops::Tensor& normed) {
  const auto gate_up =  // [num_tokens, 2 intermediate]
      ops.ColumnParallel(normed, at.gate_up_weight, at.gate_up_bias, "feed-forward, backward");
  const auto activated = ops.SwiGlu(gate_up);
  return ops.RowParallel(activated, at.down_weight, at.down_bias, "feed-forward");
}

// normed, result: [num_tokens, hidden]. Each expert computes the rows of the tokens that the router
// sends it.
template <typename Ops>
typename Ops::Tensor ExpertsForward(Ops& ops, const ExpertParameters& at,
                                    const typename Ops::Tensor& normed) {
  const auto routing = ops.Route(normed, at.router, at.routing);
  const auto rows = ops.Dispatch(normed, routing);  // [num_tokens * top_k, hidden], by expert
  const auto gate_up = ops.ExpertProducts(rows, at.gate_up, routing);
  const auto activated = ops.SwiGlu(gate_up);
  const auto results = ops.ExpertProducts(activated, at.down, routing);
  const auto combined = ops.Combine(results, routing);
  if (!at.shared.has_value()) return combined;
  const auto shared = FeedForwardForward(ops, *at.shared, normed);
  return ops.AddGated(combined, shared, normed, at.shared_gate);
}

// Attention, then the feed-forward layer, each behind a norm that first adds what came before.
template <typename Ops>
typename Ops::Residual LayerForward(Ops& ops, const LayerParameters& at,
                                    const typename Ops::Residual& in) {
  const auto first = ops.AddNorm(in, at.attention_norm);
  const auto attended = AttentionForward(ops, at.attention, first.normed);
  const auto second = ops.AddNorm({first.residual, attended}, at.feed_forward_norm);
  return {second.residual, at.experts.has_value()
                               ? ExpertsForward(ops, *at.experts, second.normed)
                               : FeedForwardForward(ops, at.feed_forward, second.normed)};
}

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LAYERS_LAYER_FORWARD_H_
