// Models of sizes that divide by the number of ranks and of sizes that do not, with weights for all ranks
// and for one of them.
#ifndef TANDEM_TESTS_COMMON_MODEL_SPLIT_MODELS_H_
#define TANDEM_TESTS_COMMON_MODEL_SPLIT_MODELS_H_

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/model/arena.h"
#include "common/model/model_spec.h"
#include "common/model/packed_attention.h"
#include "common/model/parameter_table.h"
#include "common/model/random_init.h"
#include "tests/support/varied_layers.h"

namespace tandem::model {

inline constexpr uint64_t kSeed = 5;

// Odd sizes: 61 vocabulary rows, 27 inner units, 4 key-value heads over 3 ranks.
inline ModelSpec LlamaSpec() {
  ModelSpec spec;
  spec.architecture = "LlamaForCausalLM";
  spec.vocab_size = 61;
  spec.hidden_size = 24;
  spec.max_position_embeddings = 128;
  spec.initializer_range = 0.2;
  LayerSpec layer;
  layer.feed_forward.intermediate_size = 27;
  layer.attention.num_heads = 8;
  layer.attention.num_kv_heads = 4;
  layer.attention.head_dim = 6;
  spec.layers.assign(2, layer);
  return spec;
}

// Linear attention with 3 key heads, then full attention with a gate.
inline ModelSpec LinearSpec() {
  ModelSpec spec = LlamaSpec();
  spec.architecture = "Qwen3NextForCausalLM";
  spec.layers.front().attention.delta = DeltaSpec{
      .num_key_heads = 3, .num_value_heads = 6, .key_dim = 8, .value_dim = 5, .kernel_size = 4};
  spec.layers.back().attention.output_gate = true;
  return spec;
}

inline ModelSpec Qwen2Spec() {
  ModelSpec spec = LlamaSpec();
  spec.architecture = "Qwen2ForCausalLM";
  spec.tie_word_embeddings = true;
  for (LayerSpec& layer : spec.layers) layer.attention.qkv_bias = true;
  return spec;
}

inline ModelSpec Qwen3Spec() {
  ModelSpec spec = LlamaSpec();
  spec.architecture = "Qwen3ForCausalLM";
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qk_norm.emplace();
    layer.attention.head_dim = 10;
  }
  return spec;
}

inline ModelSpec AllBiasesSpec() {
  ModelSpec spec = Qwen3Spec();
  spec.tie_word_embeddings = true;
  for (LayerSpec& layer : spec.layers)
    layer.attention.qkv_bias = layer.attention.output_bias = layer.feed_forward.bias = true;
  return spec;
}

inline ModelSpec VariedSpec() {
  ModelSpec spec = LlamaSpec();
  tandem::testing::VaryLayers(spec);
  return spec;
}

// Latent attention with values of another size than keys; queries with a latent and a bias, or not.
inline ModelSpec LatentModelSpec(int64_t q_rank) {
  ModelSpec spec = LlamaSpec();
  spec.ropes.front() = {.rotary_dim = 4, .interleaved = q_rank > 0};
  for (LayerSpec& layer : spec.layers) {
    layer.attention.num_kv_heads = layer.attention.num_heads;
    layer.attention.head_dim = 10;
    layer.attention.v_head_dim = 7;
    layer.attention.latent = {.q_rank = q_rank, .kv_rank = 11, .rope_dim = 4, .bias = q_rank > 0};
    layer.attention.output_bias = q_rank > 0;
  }
  return spec;
}

// 3 experts of 7 inner units, so that every expert has tokens; the first layer stays dense.
inline ModelSpec ExpertsSpec() {
  ModelSpec spec = Qwen3Spec();
  spec.layers.back().experts = {.num_experts = 3,
                                .intermediate_size = 7,
                                .routing = {.top_k = 2, .normalize = true},
                                .shared_intermediate_size = 11};
  return spec;
}

// As DeepSeek-V3's router and gpt-oss' experts, with an ungated shared one.
inline ModelSpec ExpertsWithBiasesSpec() {
  ModelSpec spec = ExpertsSpec();
  ExpertSpec& experts = *spec.layers.back().experts;
  experts.routing.score = RoutingSpec::Score::kSigmoid;
  experts.routing.bias = experts.routing.correction_bias = true;
  experts.routing.scale = 2.5;
  experts.activation = Activation::kClampedSwiglu;
  experts.bias = experts.shared_bias = true;
  experts.shared_gate = false;
  return spec;
}

// The box that the segment is of its logical tensor.
inline at::Tensor BoxOf(const Segment& segment, at::Tensor logical) {
  for (size_t d = 0; d < segment.shape.size(); ++d) {
    logical = logical.narrow(static_cast<int64_t>(d), segment.start[d], segment.shape[d]);
  }
  return logical;
}

struct Batch {
  std::vector<int64_t> cu_seqlens = {0, 7, 12, 13, 22};
  at::Tensor ids, positions, rows, targets, temperatures;
};

inline Batch MakeBatch(const ModelSpec& spec) {
  Batch batch;
  const int64_t n = batch.cu_seqlens.back();
  batch.ids = (at::arange(n) * 17 + 3) % spec.vocab_size;
  batch.positions = PackedPositions(at::tensor(batch.cu_seqlens, at::kLong));
  batch.rows = at::arange(0, n, 2);
  batch.targets = (at::arange(batch.rows.numel()) * 29 + 11) % spec.vocab_size;
  batch.temperatures = 0.7 + 0.1 * at::arange(batch.rows.numel()).to(at::kFloat);
  return batch;
}

// Weights that are nowhere all alike, also in norms and biases.
inline std::unique_ptr<Arena> WholeWeights(const ModelSpec& spec, const ParameterTable& table) {
  const at::NoGradGuard no_grad;
  auto arena = std::make_unique<Arena>(table, at::kFloat);
  RandomInit(spec, kSeed, *arena);
  for (size_t i = 0; i < table.segments().size(); ++i) {
    at::Tensor segment = arena->SegmentTensor(i);
    const at::Tensor index = at::arange(segment.numel(), at::kDouble);
    segment.add_((index * 0.37 + static_cast<double>(i)).sin().mul(0.02).view(segment.sizes()));
  }
  return arena;
}

inline std::unique_ptr<Arena> PartOfWeights(const Arena& whole, const ParameterTable& table) {
  const at::NoGradGuard no_grad;
  auto arena = std::make_unique<Arena>(table, at::kFloat);
  for (size_t i = 0; i < table.segments().size(); ++i) {
    arena->SegmentTensor(i).copy_(
        BoxOf(table.segment(table.segments()[i]), whole.SegmentTensor(i)));
  }
  return arena;
}

inline double RelativeDifference(const at::Tensor& found, const at::Tensor& expected) {
  const double largest = expected.abs().max().item<double>();
  return (found - expected).abs().max().item<double>() / largest;
}

struct SplitCase {
  std::string name;
  ModelSpec spec;
  int ranks = 2;
};

}  // namespace tandem::model

#endif  // TANDEM_TESTS_COMMON_MODEL_SPLIT_MODELS_H_
