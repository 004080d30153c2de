// TensorOps: the operations of a layer's forward pass (layer_forward.h) on tensors. Linear layers
// are split over tensor-parallel ranks like Megatron's (1909.08053).
#ifndef TANDEM_COMMON_MODEL_LAYERS_TENSOR_OPS_H_
#define TANDEM_COMMON_MODEL_LAYERS_TENSOR_OPS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "common/comm/process_group.h"
#include "common/model/attention.h"
#include "common/model/expert_exchange.h"
#include "common/model/expert_rows.h"
#include "common/model/latent_heads.h"
#include "common/model/layers/attention_spec.h"
#include "common/model/layers/expert_spec.h"
#include "common/model/layers/feed_forward_spec.h"
#include "common/model/layers/norm_spec.h"
#include "common/model/model_spec.h"
#include "common/model/norm.h"
#include "common/model/parameter_provider.h"
#include "common/model/recomputation.h"
#include "common/model/rotary.h"
#include "common/model/router_pass.h"

namespace tandem::model {

// What a layer reads and makes besides the stream (carried_tensors.h).
struct LayerCarried {
  // Keys and values of another layer, side by side: [num_tokens, kv_size + v_size] of this rank;
  // undefined: the layer has its own, or the attention keeps them.
  at::Tensor kv;
  at::Tensor* made_kv =
      nullptr;       // receives the layer's own; null: no layer reads them, or likewise
  at::Tensor input;  // [num_tokens, size]; undefined: none
};

// Inputs of every operation besides its activations.
struct OpContext {
  const ParameterProvider& params;
  comm::ProcessGroup* tensor_group = nullptr;  // null: the layer is not split
  // Receives the inputs of products and of attention that can be recomputed; null: all are kept.
  Recomputation* recomputation = nullptr;
  const RouterPass* routers = nullptr;  // null: as without any of it
  // The ranks that split the experts; null: each rank has all of them. If they are the tensor group, all
  // have the same tokens.
  comm::ProcessGroup* expert_group = nullptr;
  LayerCarried carried;
};

// A layer's attention. `attention` provides the past tokens: whole sequences in the trainer, a
// paged cache in the rollout, where `layer` finds the layer's part.
struct LayerAttention {
  const AttentionSpec& spec;
  QkvShape shape;  // of this rank's heads
  int64_t layer = 0;
  const Rotary& rotary;
  Attention& attention;
};

// The tensors of a norm.
Norm NormOf(const ParameterProvider& params, const NormSpec& spec, const NormParameters& norm);

// Lives as long as one layer's forward pass; the arguments must outlive it. Single-threaded.
class TensorOps {
 public:
  using Tensor = at::Tensor;
  using Residual = model::Residual;
  using Normed = ResidualNorm;
  static constexpr bool kMayCacheLatents = true;
  struct Routing {
    at::Tensor weights;  // float32 [num_tokens, top_k]
    bool weigh_inputs;   // RoutingSpec's
    ExpertRows rows;     // of this rank's tokens, over all experts
    // If the experts are split: the rows that this rank's experts compute, num_rows of them in the
    // operations below. Without it these are `rows`, num_tokens * top_k.
    std::optional<ExpertExchange> exchange;
    // If tensor-parallel ranks split them: this rank's part of `rows`.
    std::optional<OwnExpertRows> own;

    const ExpertRows& computed() const {
      return exchange.has_value() ? exchange->own : own.has_value() ? own->rows : rows;
    }
  };

  TensorOps(const OpContext& context, const LayerAttention& attention)
      : context_(context), attention_(attention) {}

  // Adds the previous sub-layer's output and normalises the sum, in one pass over the rows.
  ResidualNorm AddNorm(const Residual& in, const NormSpec& spec, const NormParameters& norm);

  // Returns the norm of a sub-layer's result x.
  at::Tensor Normalize(const at::Tensor& x, const NormSpec& spec, const NormParameters& norm);

  at::Tensor Sum(const Residual& in);

  // Returns x times a number of the model; x itself for 1.
  at::Tensor Scale(const at::Tensor& x, double factor);
  // Returns x [num_tokens, hidden] times the parameter, [hidden], element by element, or [1].
  at::Tensor ScaleElements(const at::Tensor& x, int scale);

  // Returns x [num_tokens, in], identical on every rank, times this rank's rows of the weight.
  // `tag` names the layer in errors of collectives.
  at::Tensor ColumnParallel(const at::Tensor& x, int weight, int bias, const char* tag);

  // Returns x [num_tokens, this rank's inputs] times its columns of the weight, summed over the
  // ranks; the bias is added once.
  at::Tensor RowParallel(const at::Tensor& x, int weight, int bias, const char* tag);

  // qkv: [num_tokens, q_size + kv_size + v_size] of this rank, without v_size of
  // AttentionSpec::values_are_keys. Limits, norms and rotates the heads as the
  // layer's AttentionSpec says, and attends. Returns [num_tokens, attended_size].
  at::Tensor Attend(const at::Tensor& qkv, const AttentionParameters& at);

  // The same for queries alone, [num_tokens, q_size] of this rank, with the keys and values of
  // AttentionSpec::kv_layer.
  at::Tensor AttendToOthers(const at::Tensor& queries, const AttentionParameters& at);

  // Returns attended times the sigmoid of the gate, both [num_tokens, attended_size].
  at::Tensor Gate(const at::Tensor& attended, const at::Tensor& gate);

  // projected: [num_tokens, DeltaSpec::projected_size] of this rank. Returns [num_tokens, value_size].
  at::Tensor AttendLinearly(const at::Tensor& projected, const DeltaParameters& at);

  // Returns x times the whole weight, which every rank holds: the same on every rank.
  at::Tensor Replicated(const at::Tensor& x, int weight, int bias);

  // Returns a copy of x's columns from `begin` on.
  at::Tensor Columns(const at::Tensor& x, int64_t begin, int64_t size);

  // Latent attention (latent_spec.h). q: [num_tokens, q_size] of this rank; shared: [num_tokens,
  // rope_dim], identical on every rank; kv: [num_tokens, heads * (nope_dim + v_head_dim)] of this
  // rank. Rotates and joins the heads, and attends. Returns [num_tokens, attended_size].
  at::Tensor AttendLatent(const at::Tensor& q, const at::Tensor& shared, const at::Tensor& kv);

  // Whether the attention's cache holds latents, for AttendToLatents() in place of AttendLatent().
  bool CachesLatents() const { return attention_.attention.CachesLatents(); }

  // The same result, but for its rounding, from the normed latent [num_tokens, kv_rank]; no key or
  // value is made (absorbed_heads.h).
  at::Tensor AttendToLatents(const at::Tensor& q, const at::Tensor& latent,
                             const at::Tensor& shared, const LatentParameters& at);

  // gate_up: [num_rows, 2 intermediate], or [num_rows, intermediate] without a gate. Returns
  // [num_rows, intermediate].
  at::Tensor Activate(const at::Tensor& gate_up, const FeedForwardSpec& spec, int alphas);

  // gate: [num_tokens, size]. Returns its activation times the layer's input.
  at::Tensor GateInput(const at::Tensor& gate, const InputGateSpec& spec);

  // Returns the experts of each token of x [num_tokens, hidden], identical on every rank.
  Routing Route(const at::Tensor& x, const RoutingSpec& spec, const RouterParameters& at);

  // Returns the rows of this rank's experts, by expert, [num_rows, hidden].
  at::Tensor Dispatch(const at::Tensor& x, const Routing& routing);

  // Returns rows [num_rows, hidden], by expert, times this rank's rows of each expert's weight.
  at::Tensor ExpertColumnParallel(const at::Tensor& rows, const ExpertMatrices& at,
                                  const Routing& routing);

  // Returns rows [num_rows, this rank's inputs] times its columns of each expert's weight:
  // its part of a sum over ranks, to which the first one adds the biases, or the one with the expert.
  at::Tensor ExpertRowParallel(const at::Tensor& rows, const ExpertMatrices& at,
                               const Routing& routing);

  // Returns the weighted sum of each token's results, [num_tokens, hidden], over experts and ranks.
  at::Tensor Combine(const at::Tensor& results, const Routing& routing);

  // Returns routed + shared * sigmoid(x gate), all [num_tokens, hidden]. gate: [1, hidden].
  at::Tensor AddGated(const at::Tensor& routed, const at::Tensor& shared, const at::Tensor& x,
                      int gate);

 private:
  // Whether the ranks that split the experts have the same tokens.
  bool SplitsSameTokens() const {
    return context_.expert_group != nullptr && context_.expert_group == context_.tensor_group;
  }
  std::optional<at::Tensor> Optional(int index) const;
  at::Tensor Limited(const at::Tensor& qkv) const;  // to AttentionSpec::clip_qkv
  at::Tensor Project(const at::Tensor& x, int weight, int bias) const;
  TensorParallel Parallel() const;
  // Dispatch() of rows times their weights; x is split from its ranks.
  at::Tensor DispatchWeighed(const at::Tensor& x, const Routing& routing);
  at::Tensor ExpertProducts(const at::Tensor& rows, const ExpertMatrices& at,
                            const std::vector<at::Tensor>& biases, const Routing& routing) const;
  HeadRotation RotationOf(const AttentionParameters& at) const;
  LatentShape ShapeOfLatent() const;
  RotaryAngles AnglesOfLayer() const;  // undefined without a rotation
  AttentionParams ParamsOf(const AttentionParameters& at) const;

  const OpContext& context_;
  const LayerAttention& attention_;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LAYERS_TENSOR_OPS_H_
