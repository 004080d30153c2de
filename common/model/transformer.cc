#include "common/model/transformer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mul.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <optional>
#include <utility>

#include "common/model/cpu_dispatch.h"
#include "common/model/eager_ops.h"
#include "common/model/gather_rows.h"
#include "common/model/head_of.h"
#include "common/model/layers/layer_forward.h"
#include "common/model/layers/tensor_ops.h"
#include "common/model/linear.h"
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
      carried_(CarriedTensorsOf(spec_)),
      rotary_tables_(spec_) {
  for (const LayerSpec& layer : spec_.layers) {
    const AttentionPart part = PartOf(layer.attention, table_.tensor_parallel());
    const int64_t kv_heads = layer.attention.reads_other_kv() ? 0 : part.kv_heads.size();
    heads_.push_back(
        {part.heads.size(), kv_heads, layer.attention.head_dim, layer.attention.v_head_dim});
  }
  for (int i = 0; i < static_cast<int>(carried_.size()); ++i) {
    const CarriedTensor& carried = carried_[i];
    if (carried.kind == CarriedTensor::Kind::kImageRows) continue;
    carried_of_layers_.resize(spec_.layers.size());
    const bool is_kv = carried.kind == CarriedTensor::Kind::kKeysAndValues;
    if (is_kv) carried_of_layers_[carried.maker - 1].made_kv = i;
    for (const int reader : carried.readers) {
      CarriedOfLayer& of_layer = carried_of_layers_[reader - 1];
      (is_kv ? of_layer.kv : of_layer.input) = i;
    }
  }
}

Rotary Transformer::MakeRotary(const at::Tensor& positions, const at::Tensor& lengths) const {
  return rotary_tables_.Make(positions, lengths);
}

at::Tensor Transformer::LookUp(const ParameterProvider& params, int table, Range own_rows,
                               const at::Tensor& token_ids, const char* tag) const {
  const at::Tensor& weight = params.Get(table);
  if (tensor_group_ == nullptr) return RowsOfTable(weight, token_ids);
  // Each token's row is on one rank; the others give zeros.
  const at::Tensor row = token_ids - own_rows.begin;
  const at::Tensor elsewhere = (row < 0) | (row >= own_rows.size());
  const at::Tensor own =
      at::embedding(weight, row.masked_fill(elsewhere, 0)).masked_fill(elsewhere.unsqueeze(1), 0.0);
  return SumOverRanks(own, tensor_group_, tag);
}

at::Tensor Transformer::Embed(const ParameterProvider& params, const at::Tensor& token_ids,
                              const at::Tensor& positions, Carried* carried) const {
  at::Tensor x = LookUp(params, table_.embedding(), vocabulary_, token_ids, "embedding");
  if (spec_.embedding_multiplier != 1.0) {
    x = at::mul(x, spec_.embedding_multiplier_rounds
                       ? RoundedTo(x.scalar_type(), spec_.embedding_multiplier)
                       : spec_.embedding_multiplier);
  }
  if (const auto& learned = spec_.position_embedding; learned.has_value()) {
    const at::Tensor rows = learned->offset == 0 ? positions : positions + learned->offset;
    x = Sum({x, RowsOfTable(params.Get(table_.position_embedding()), rows)});
  }
  if (spec_.embedding_norm.has_value()) {
    x = Normalize(x, NormOf(params, *spec_.embedding_norm, table_.embedding_norm()));
  }
  if (carried != nullptr) carried->assign(carried_.size(), at::Tensor());
  if (carried_of_layers_.empty()) return x;
  TORCH_CHECK(carried != nullptr, "the model carries tensors besides the stream");
  if (spec_.layer_inputs.has_value()) MakeLayerInputs(params, token_ids, x, *carried);
  return x;
}

void Transformer::MakeLayerInputs(const ParameterProvider& params, const at::Tensor& token_ids,
                                  const at::Tensor& x, Carried& carried) const {
  const LayerInputSpec& spec = *spec_.layer_inputs;
  const LayerInputParameters& at = table_.layer_inputs();
  // Whole on every rank, like the projection's input.
  at::Tensor inputs =
      Linear(x, params.Get(at.projection), std::nullopt, params.Packed(at.projection));
  inputs = at::mul(inputs, 1.0 / std::sqrt(static_cast<double>(spec_.hidden_size)));
  inputs = Normalize(inputs.view({-1, spec.size}), NormOf(params, spec.norm, at.norm));
  at::Tensor rows =
      LookUp(params, at.table, PartOf(spec.vocab_size, table_.tensor_parallel()), token_ids,
             "inputs of layers");  // [num_tokens, layers * size]
  rows = at::mul(rows, RoundedTo(rows.scalar_type(), std::sqrt(static_cast<double>(spec.size))));
  inputs = at::mul(Sum({inputs, rows.view({-1, spec.size})}), std::sqrt(0.5));
  // At once: the layers' gradients are then put together in one tensor.
  const std::vector<at::Tensor> of_layers =
      inputs.view({x.size(0), spec_.num_layers(), spec.size}).unbind(1);
  for (size_t layer = 0; layer < of_layers.size(); ++layer) {
    carried[carried_of_layers_[layer].input] = of_layers[layer];
  }
}

at::Tensor Transformer::Block(const ParameterProvider& params, int64_t layer, const at::Tensor& x,
                              const Rotary& rotary, Attention& attention,
                              Recomputation* recomputation, const RouterPass* routers,
                              Carried* carried) const {
  return Sum(
      Block(params, layer, Residual{x, {}}, rotary, attention, recomputation, routers, carried));
}

Residual Transformer::Block(const ParameterProvider& params, int64_t layer, const Residual& in,
                            const Rotary& rotary, Attention& attention,
                            Recomputation* recomputation, const RouterPass* routers,
                            Carried* carried) const {
  OpContext context{params, tensor_group_, recomputation, routers, expert_group_, {}};
  if (!carried_of_layers_.empty()) {
    TORCH_CHECK(carried != nullptr, "the model carries tensors besides the stream");
    const CarriedOfLayer& of_layer = carried_of_layers_[layer];
    if (of_layer.kv >= 0) context.carried.kv = (*carried)[of_layer.kv];
    if (of_layer.input >= 0) context.carried.input = (*carried)[of_layer.input];
    if (of_layer.made_kv >= 0 && !attention.KeepsKeys()) {
      context.carried.made_kv = &(*carried)[of_layer.made_kv];
    }
  }
  const LayerSpec& spec = spec_.layers[layer];
  const LayerAttention at{spec.attention, heads_[layer], layer, rotary, attention};
  TensorOps ops(context, at);
  return LayerForward(ops, spec, table_.layer(layer), in);
}

at::Tensor Transformer::Blocks(const ParameterProvider& params, const at::Tensor& token_ids,
                               const at::Tensor& positions, const Rotary& rotary,
                               Attention& attention, const RouterPass* routers) const {
  Carried carried;
  at::Tensor x = Embed(params, token_ids, positions, &carried);
  for (int64_t layer = 0; layer < spec_.num_layers(); ++layer) {
    x = Block(params, layer, x, rotary, attention, /*recomputation=*/nullptr, routers, &carried);
  }
  return x;
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
