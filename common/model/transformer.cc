#include "common/model/transformer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mul.h>
#include <c10/util/BFloat16.h>

#include <utility>

#include "common/model/cpu_dispatch.h"
#include "common/model/eager_ops.h"
#include "common/model/gather_rows.h"
#include "common/model/head_of.h"
#include "common/model/layers/layer_forward.h"
#include "common/model/layers/tensor_ops.h"
#include "common/model/norm.h"
#include "common/model/tensor_collectives.h"

namespace tandem::model {
namespace {

double RoundedTo(at::ScalarType type, double factor) {
  if (type == at::kBFloat16) return c10::BFloat16(static_cast<float>(factor));
  return type == at::kFloat ? static_cast<float>(factor) : factor;
}

// Row rows[i] of the table as row i.
at::Tensor RowsOfTable(const at::Tensor& table, const at::Tensor& rows) {
  if (KernelsTake({table}) && !NeedsGraph({table})) {
    return GatherRows(table.contiguous(), rows.contiguous());
  }
  return at::embedding(table, rows);
}

// Parallel: TensorParallel or ExpertParallel.
template <typename Parallel>
Parallel ParallelOf(const comm::ProcessGroup* group) {
  if (group == nullptr) return {};
  return {group->rank(), group->size()};
}

ExpertParallel ExpertsOf(const comm::ProcessGroup* tensor_group,
                         const comm::ProcessGroup* expert_group) {
  ExpertParallel experts = ParallelOf<ExpertParallel>(expert_group);
  experts.of_tensor_ranks = expert_group != nullptr && expert_group == tensor_group;
  return experts;
}

}  // namespace

Transformer::Transformer(ModelSpec spec, const UnitLimits& limits, comm::ProcessGroup* tensor_group,
                         comm::ProcessGroup* expert_group)
    : spec_(std::move(spec)),
      tensor_group_(IsSplit(tensor_group) ? tensor_group : nullptr),
      expert_group_(IsSplit(expert_group) ? expert_group : nullptr),
      table_(spec_, limits, ParallelOf<TensorParallel>(tensor_group_),
             ExpertsOf(tensor_group_, expert_group_)),
      vocabulary_(PartOf(spec_.vocab_size, table_.tensor_parallel())),
      rotary_tables_(spec_) {
  for (const LayerSpec& layer : spec_.layers) {
    const AttentionPart part = PartOf(layer.attention, table_.tensor_parallel());
    heads_.push_back({part.heads.size(), part.kv_heads.size(), layer.attention.head_dim,
                      layer.attention.v_head_dim});
  }
}

Rotary Transformer::MakeRotary(const at::Tensor& positions, const at::Tensor& lengths) const {
  return rotary_tables_.Make(positions, lengths);
}

at::Tensor Transformer::LookUp(const ParameterProvider& params, const at::Tensor& token_ids) const {
  const at::Tensor& weight = params.Get(table_.embedding());
  if (tensor_group_ == nullptr) return RowsOfTable(weight, token_ids);
  // Each token's row is on one rank; the others give zeros.
  const at::Tensor row = token_ids - vocabulary_.begin;
  const at::Tensor elsewhere = (row < 0) | (row >= vocabulary_.size());
  const at::Tensor own =
      at::embedding(weight, row.masked_fill(elsewhere, 0)).masked_fill(elsewhere.unsqueeze(1), 0.0);
  return SumOverRanks(own, tensor_group_, "embedding");
}

at::Tensor Transformer::Embed(const ParameterProvider& params, const at::Tensor& token_ids,
                              const at::Tensor& positions) const {
  at::Tensor x = LookUp(params, token_ids);
  if (spec_.embedding_multiplier != 1.0) {
    x = at::mul(x, spec_.embedding_multiplier_rounds
                       ? RoundedTo(x.scalar_type(), spec_.embedding_multiplier)
                       : spec_.embedding_multiplier);
  }
  if (const auto& learned = spec_.position_embedding; learned.has_value()) {
    const at::Tensor rows = learned->offset == 0 ? positions : positions + learned->offset;
    x = Sum({x, RowsOfTable(params.Get(table_.position_embedding()), rows)});
  }
  if (!spec_.embedding_norm.has_value()) return x;
  return Normalize(x, NormOf(params, *spec_.embedding_norm, table_.embedding_norm()));
}

at::Tensor Transformer::Block(const ParameterProvider& params, int64_t layer, const at::Tensor& x,
                              const Rotary& rotary, Attention& attention,
                              Recomputation* recomputation, const RouterPass* routers) const {
  return Sum(Block(params, layer, Residual{x, {}}, rotary, attention, recomputation, routers));
}

Residual Transformer::Block(const ParameterProvider& params, int64_t layer, const Residual& in,
                            const Rotary& rotary, Attention& attention,
                            Recomputation* recomputation, const RouterPass* routers) const {
  const OpContext context{params, tensor_group_, recomputation, routers, expert_group_};
  const LayerSpec& spec = spec_.layers[layer];
  const LayerAttention at{spec.attention, heads_[layer], layer, rotary, attention};
  TensorOps ops(context, at);
  return LayerForward(ops, spec, table_.layer(layer), in);
}

at::Tensor Transformer::FinalNorm(const ParameterProvider& params, const at::Tensor& x) const {
  if (!spec_.final_norm.has_value()) return x;
  return Normalize(x, NormOf(params, *spec_.final_norm, table_.final_norm()));
}

LmHead HeadOf(const Transformer& model, const ParameterProvider& params) {
  const ParameterTable& table = model.table();
  return {.weight = params.Get(table.lm_head()),
          .bias = params.GetOrUndefined(table.lm_head_bias()),
          .scale = model.spec().logit_scale,
          .softcap = model.spec().logit_softcap,
          .packed = params.Packed(table.lm_head())};
}

LmHead Transformer::HeadOf(const ParameterProvider& params) const {
  return model::HeadOf(*this, params);
}

at::Tensor Transformer::Logits(const ParameterProvider& params, const at::Tensor& hidden) const {
  return HeadLogits(hidden.contiguous(), HeadOf(params));
}

LogProbs Transformer::HeadLogProbs(const ParameterProvider& params, const at::Tensor& hidden,
                                   const at::Tensor& targets,
                                   const at::Tensor& temperatures) const {
  return ChunkedLogProbs(CopyToRanks(hidden, tensor_group_, "head, backward"), HeadOf(params),
                         targets, temperatures, {tensor_group_, vocabulary_.begin});
}

LogProbs Transformer::HeadLogProbsAndSquares(const ParameterProvider& params,
                                             const at::Tensor& hidden, const at::Tensor& targets,
                                             const at::Tensor& temperatures) const {
  return ChunkedLogProbsAndSquares(hidden, HeadOf(params), targets, temperatures,
                                   {tensor_group_, vocabulary_.begin});
}

at::Tensor Transformer::Values(const ParameterProvider& params, const at::Tensor& hidden) const {
  // bfloat16 would round values to three digits, and advantages are their differences.
  const at::Tensor bias = params.GetOrUndefined(table_.value_head_bias());
  return at::linear(eager::Wide(hidden), eager::Wide(params.Get(table_.value_head())),
                    bias.defined() ? eager::Wide(bias) : bias)
      .squeeze(1);
}

}  // namespace tandem::model
