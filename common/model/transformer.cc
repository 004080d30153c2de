#include "common/model/transformer.h"

#include <ATen/ops/add.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/stack.h>

#include <cmath>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include "common/model/cpu_dispatch.h"
#include "common/model/gather_rows.h"
#include "common/model/linear.h"
#include "common/model/norm.h"
#include "common/model/swiglu.h"
#include "common/model/tensor_collectives.h"

namespace tandem::model {
namespace {

// Each step in float32, as the checkpoints' own code does it, for the last bit of a frequency is
// multiplied by the position.
at::Tensor InverseFrequencies(const ModelSpec& spec) {
  const int64_t half = spec.head_dim / 2;
  at::Tensor frequencies = at::empty({half}, at::kFloat);
  float* out = frequencies.mutable_data_ptr<float>();
  for (int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(spec.head_dim);
    float frequency = 1.0f / std::pow(static_cast<float>(spec.rope.theta), exponent);
    frequency /= static_cast<float>(spec.rope.linear_factor);
    if (spec.rope.llama3.has_value()) {
      // Waves longer than the original context are stretched by the factor, those well inside are
      // left alone, and in between the two are mixed.
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

std::optional<at::Tensor> Optional(const ParameterProvider& params, int index) {
  if (index < 0) return std::nullopt;
  return params.Get(index);
}

at::Tensor Project(const ParameterProvider& params, const at::Tensor& x, int weight,
                   int bias = -1) {
  return Linear(x, params.Get(weight), Optional(params, bias), params.Packed(weight));
}

TensorParallel ParallelOf(const comm::ProcessGroup* group) {
  if (group == nullptr) return {};
  return {group->rank(), group->size()};
}

}  // namespace

Transformer::Transformer(ModelSpec spec, const UnitLimits& limits, comm::ProcessGroup* tensor_group)
    : spec_(std::move(spec)),
      tensor_group_(IsSplit(tensor_group) ? tensor_group : nullptr),
      part_(PartOf(spec_, ParallelOf(tensor_group_))),
      table_(spec_, limits, ParallelOf(tensor_group_)),
      inverse_frequencies_(InverseFrequencies(spec_)) {}

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
  const at::Tensor row = token_ids - part_.vocabulary.begin;
  const at::Tensor elsewhere = (row < 0) | (row >= part_.vocabulary.size());
  const at::Tensor own =
      at::embedding(weight, row.masked_fill(elsewhere, 0)).masked_fill(elsewhere.unsqueeze(1), 0.0);
  return SumOverRanks(own, tensor_group_, "embedding");
}

at::Tensor Transformer::RowParallel(const ParameterProvider& params, const at::Tensor& x,
                                    int weight, int bias, const char* tag) const {
  if (tensor_group_ == nullptr) return Project(params, x, weight, bias);
  const at::Tensor sum = SumOverRanks(Project(params, x, weight), tensor_group_, tag);
  return bias < 0 ? sum : at::add(sum, params.Get(bias));
}

at::Tensor Transformer::Block(const ParameterProvider& params, int64_t layer, const at::Tensor& x,
                              const Rotary& rotary, Attention& attention,
                              Recomputation* recomputation) const {
  return Sum(Block(params, layer, Residual{x, {}}, rotary, attention, recomputation));
}

Residual Transformer::Block(const ParameterProvider& params, int64_t layer, const Residual& in,
                            const Rotary& rotary, Attention& attention,
                            Recomputation* recomputation) const {
  const LayerParameters& at = table_.layer(layer);
  const QkvShape shape{part_.heads.size(), part_.kv_heads.size(), spec_.head_dim};
  const double eps = spec_.rms_norm_eps;

  const auto [x, normed] =  // [num_tokens, hidden]
      AddRmsNorm(in.x, in.delta, params.Get(at.input_norm), eps);
  const at::Tensor qkv = Project(params, CopyToRanks(normed, tensor_group_, "attention, backward"),
                                 at.qkv_weight, at.qkv_bias);
  std::optional<at::Tensor> q_norm = Optional(params, at.q_norm);
  std::optional<at::Tensor> k_norm = Optional(params, at.k_norm);
  if (tensor_group_ != nullptr && q_norm.has_value() && k_norm.has_value()) {
    // Every rank's heads add to the gradient of these.
    const at::Tensor norms =
        CopyToRanks(at::stack({*q_norm, *k_norm}), tensor_group_, "q_norm and k_norm, backward");
    q_norm = norms[0];
    k_norm = norms[1];
  }
  const HeadRotation rotation{rotary, shape, q_norm, k_norm, eps};
  AttentionParams attention_params;
  attention_params.scale = 1.0 / std::sqrt(static_cast<double>(spec_.head_dim));
  at::Tensor attended;
  if (recomputation == nullptr) {
    attended = attention.ForwardProjected(layer, qkv, rotation, attention_params);
  } else {
    const auto [q, k, v] = RotateQkv(qkv, rotation);
    recomputation->Add({normed}, [=, x = x.detach(), weight = params.Get(at.input_norm)] {
      return std::vector<at::Tensor>{RmsNorm(x, weight, eps)};
    });
    recomputation->Add({q, k}, [=, qkv = qkv.detach()] {
      const Qkv rotated = RotateQkv(qkv, rotation);
      return std::vector<at::Tensor>{rotated.q, rotated.k};
    });
    attended = attention.Forward(layer, q, k, v, attention_params);
  }
  const at::Tensor delta = RowParallel(params, attended, at.o_weight, at.o_bias, "attention");

  const auto [residual, mlp_in] = AddRmsNorm(x, delta, params.Get(at.post_attention_norm), eps);
  const at::Tensor gate_up =  // [num_tokens, 2 intermediate]
      Project(params, CopyToRanks(mlp_in, tensor_group_, "feed-forward, backward"),
              at.gate_up_weight, at.gate_up_bias);
  const at::Tensor activated = SwiGlu(gate_up);
  if (recomputation != nullptr) {
    recomputation->Add(
        {mlp_in}, [=, residual = residual.detach(), weight = params.Get(at.post_attention_norm)] {
          return std::vector<at::Tensor>{RmsNorm(residual, weight, eps)};
        });
    recomputation->Add({activated}, [gate_up = gate_up.detach()] {
      return std::vector<at::Tensor>{SwiGlu(gate_up)};
    });
  }
  const at::Tensor down =
      RowParallel(params, activated, at.down_weight, at.down_bias, "feed-forward");
  return {residual, down};
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
                         {tensor_group_, part_.vocabulary.begin}, params.Packed(table_.lm_head()));
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
