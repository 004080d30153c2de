#include "common/model/transformer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>

#include <cmath>
#include <numbers>
#include <utility>

#include "common/model/cpu_dispatch.h"
#include "common/model/gather_rows.h"
#include "common/model/layers/layer_forward.h"
#include "common/model/layers/tensor_ops.h"
#include "common/model/norm.h"
#include "common/model/tensor_collectives.h"

namespace tandem::model {
namespace {

// Computes each step in float32, like the checkpoints' own code: the position multiplies the last
// bit of a frequency.
at::Tensor InverseFrequencies(const ModelSpec& spec) {
  const int64_t head_dim = spec.layers.front().attention.head_dim;
  const int64_t half = head_dim / 2;
  at::Tensor frequencies = at::empty({half}, at::kFloat);
  float* out = frequencies.mutable_data_ptr<float>();
  for (int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    float frequency = 1.0f / std::pow(static_cast<float>(spec.rope.theta), exponent);
    frequency /= static_cast<float>(spec.rope.linear_factor);
    if (spec.rope.llama3.has_value()) {
      // The factor stretches waves longer than the original context, leaves those well inside
      // alone, and blends the two in between.
      const Llama3RopeScaling& scaling = *spec.rope.llama3;
      const double context = static_cast<double>(scaling.original_max_position_embeddings);
      const double wavelength = 2.0 * std::numbers::pi / frequency;
      if (wavelength > context / scaling.low_freq_factor) {
        frequency = static_cast<float>(frequency / scaling.factor);
      } else if (wavelength >= context / scaling.high_freq_factor) {
        const double smooth = (context / wavelength - scaling.low_freq_factor) /
                              (scaling.high_freq_factor - scaling.low_freq_factor);
        frequency =
            static_cast<float>((1.0 - smooth) * frequency / scaling.factor + smooth * frequency);
      }
    }
    out[i] = frequency;
  }
  return frequencies;
}

TensorParallel ParallelOf(const comm::ProcessGroup* group) {
  if (group == nullptr) return {};
  return {group->rank(), group->size()};
}

}  // namespace

Transformer::Transformer(ModelSpec spec, const UnitLimits& limits, comm::ProcessGroup* tensor_group)
    : spec_(std::move(spec)),
      tensor_group_(IsSplit(tensor_group) ? tensor_group : nullptr),
      table_(spec_, limits, ParallelOf(tensor_group_)),
      vocabulary_(PartOf(spec_.vocab_size, table_.tensor_parallel())),
      inverse_frequencies_(InverseFrequencies(spec_)) {
  for (const LayerSpec& layer : spec_.layers) {
    const AttentionPart part = PartOf(layer.attention, table_.tensor_parallel());
    heads_.push_back({part.heads.size(), part.kv_heads.size(), layer.attention.head_dim});
  }
}

Rotary Transformer::MakeRotary(const at::Tensor& positions) const {
  return RotaryOf(positions, inverse_frequencies_);
}

at::Tensor Transformer::Embed(const ParameterProvider& params, const at::Tensor& token_ids) const {
  const at::Tensor& weight = params.Get(table_.embedding());
  if (tensor_group_ == nullptr) {
    if (KernelsTake({weight}) && !NeedsGraph({weight})) {
      return GatherRows(weight.contiguous(), token_ids.contiguous());
    }
    return at::embedding(weight, token_ids);
  }
  // Each token's row is on one rank; the others give zeros.
  const at::Tensor row = token_ids - vocabulary_.begin;
  const at::Tensor elsewhere = (row < 0) | (row >= vocabulary_.size());
  const at::Tensor own =
      at::embedding(weight, row.masked_fill(elsewhere, 0)).masked_fill(elsewhere.unsqueeze(1), 0.0);
  return SumOverRanks(own, tensor_group_, "embedding");
}

at::Tensor Transformer::Block(const ParameterProvider& params, int64_t layer, const at::Tensor& x,
                              const Rotary& rotary, Attention& attention,
                              Recomputation* recomputation) const {
  return Sum(Block(params, layer, Residual{x, {}}, rotary, attention, recomputation));
}

Residual Transformer::Block(const ParameterProvider& params, int64_t layer, const Residual& in,
                            const Rotary& rotary, Attention& attention,
                            Recomputation* recomputation) const {
  const OpContext context{params, tensor_group_, recomputation, spec_.rms_norm_eps};
  const LayerAttention at{spec_.layers[layer].attention, heads_[layer], layer, rotary, attention};
  TensorOps ops(context, at);
  return LayerForward(ops, table_.layer(static_cast<int>(layer)), in);
}

at::Tensor Transformer::FinalNorm(const ParameterProvider& params, const at::Tensor& x) const {
  return RmsNorm(x, params.Get(table_.final_norm()), spec_.rms_norm_eps);
}

at::Tensor Transformer::Logits(const ParameterProvider& params, const at::Tensor& hidden) const {
  return HeadLogits(hidden.contiguous(), params.Get(table_.lm_head()),
                    params.Packed(table_.lm_head()));
}

LogProbs Transformer::HeadLogProbs(const ParameterProvider& params, const at::Tensor& hidden,
                                   const at::Tensor& targets,
                                   const at::Tensor& temperatures) const {
  return ChunkedLogProbs(CopyToRanks(hidden, tensor_group_, "head, backward"),
                         params.Get(table_.lm_head()), targets, temperatures,
                         {tensor_group_, vocabulary_.begin}, params.Packed(table_.lm_head()));
}

LogProbs Transformer::HeadLogProbsAndSquares(const ParameterProvider& params,
                                             const at::Tensor& hidden, const at::Tensor& targets,
                                             const at::Tensor& temperatures) const {
  return ChunkedLogProbsAndSquares(hidden, params.Get(table_.lm_head()), targets, temperatures,
                                   {tensor_group_, vocabulary_.begin},
                                   params.Packed(table_.lm_head()));
}

at::Tensor Transformer::Values(const ParameterProvider& params, const at::Tensor& hidden) const {
  // bfloat16 would round values to three digits, and advantages are their differences.
  const auto wide = [](const at::Tensor& x) {
    return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
  };
  return at::linear(wide(hidden), wide(params.Get(table_.value_head())),
                    wide(params.Get(table_.value_head_bias())))
      .squeeze(1);
}

}  // namespace tandem::model
