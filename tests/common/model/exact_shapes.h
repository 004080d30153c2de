// Small models, with what families differ in, for comparisons bit for bit.
#ifndef TANDEM_TESTS_COMMON_MODEL_EXACT_SHAPES_H_
#define TANDEM_TESTS_COMMON_MODEL_EXACT_SHAPES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "common/model/model_spec.h"
#include "tests/support/shared_layers.h"
#include "tests/support/varied_layers.h"

namespace tandem::model {

// A small model: ratios of heads, head sizes, and what the families differ in.
struct ExactShape {
  const char* name;
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
  int64_t hidden_size;
  int64_t intermediate_size;
  int64_t vocab_size;
  bool qkv_bias = false;
  bool qk_norm = false;
  bool tied = false;
  Window window = 0;                                 // of the last layer
  std::optional<ExpertSpec> experts = std::nullopt;  // likewise
  bool varied = false;                               // see tests/support/varied_layers.h
  int64_t v_head_dim = 0;                            // of all layers; 0: head_dim
  std::optional<LatentSpec> latent = std::nullopt;   // likewise
  // Of the first layer. The other one then has a gate on attention's results.
  std::optional<DeltaSpec> delta = std::nullopt;
  // Of the last layer, which half of its heads' elements rotates in; there are two of both layers then.
  std::optional<AttentionSpec> last = std::nullopt;
  // Layers read each other's keys and values, have inputs of their own, or both
  // (tests/support/shared_layers.h).
  int64_t shared_window = 0;
  int64_t input_size = 0;
  bool shared = false;

  ModelSpec Spec() const {
    ModelSpec spec;
    spec.architecture = "Qwen2ForCausalLM";
    spec.vocab_size = vocab_size;
    spec.hidden_size = hidden_size;
    spec.max_position_embeddings = 1024;
    spec.tie_word_embeddings = tied;
    spec.initializer_range = 0.2;
    LayerSpec layer;
    layer.feed_forward.intermediate_size = intermediate_size;
    layer.attention.num_heads = num_heads;
    layer.attention.num_kv_heads = num_kv_heads;
    layer.attention.head_dim = head_dim;
    layer.attention.v_head_dim = v_head_dim;
    layer.attention.latent = latent;
    layer.attention.qkv_bias = qkv_bias;
    layer.attention.output_bias = qkv_bias;
    layer.feed_forward.bias = qkv_bias && tied;
    if (qk_norm) layer.attention.qk_norm.emplace();
    spec.layers.assign(2, layer);
    spec.layers.back().attention.window = window;
    spec.layers.back().experts = experts;
    spec.layers.front().attention.delta = delta;
    spec.layers.back().attention.output_gate = delta.has_value();
    if (last.has_value()) {
      spec.ropes.push_back({.theta = 100.0, .rotary_dim = last->head_dim / 2});
      spec.layers.back().attention = *last;
      spec.layers.back().attention.rope = 1;
      for (const int i : {0, 1}) spec.layers.push_back(LayerSpec(spec.layers[i]));
    }
    if (varied) tandem::testing::VaryLayers(spec);
    if (shared_window > 0) tandem::testing::ShareKeys(spec, shared_window);
    if (input_size > 0) tandem::testing::AddLayerInputs(spec, input_size);
    if (shared) tandem::testing::ShareLayers(spec);
    // Pairs rotate in one of the shapes.
    if (latent.has_value()) {
      spec.ropes.front() = {.rotary_dim = latent->rope_dim, .interleaved = latent->q_rank == 0};
    }
    return spec;
  }
};

inline const std::vector<ExactShape>& ExactShapes() {
  static const std::vector<ExactShape> shapes = {
      {"heads4_kv4_dim32", 4, 4, 32, 48, 80, 131},
      {"heads4_kv2_dim64", 4, 2, 64, 64, 96, 600, true},
      {"heads8_kv1_dim32_tied", 8, 1, 32, 40, 104, 97, false, false, true},
      {"heads6_kv2_dim80", 6, 2, 80, 72, 56, 1030, false, true},
      {"heads7_kv1_dim64_tied", 7, 1, 64, 56, 72, 515, true, false, true},
      {"heads2_kv1_dim128", 2, 1, 128, 64, 64, 150, false, true, true},
      {"heads3_kv3_dim20", 3, 3, 20, 36, 33, 61, true, true},
  };
  return shapes;
}

// Windows within a block of keys, and over several.
inline const std::vector<ExactShape>& WindowedShapes() {
  static const std::vector<ExactShape> shapes = {
      {"heads4_kv2_dim32_window1", 4, 2, 32, 48, 80, 131, false, false, false, 1},
      {"heads7_kv1_dim64_window20", 7, 1, 64, 56, 72, 515, true, false, false, 20},
      {"heads6_kv2_dim80_window150", 6, 2, 80, 72, 56, 131, false, true, false, 150},
      {"heads4_kv2_dim32_chunks20", 4, 2, 32, 48, 80, 131, false, false, false, {20, true}},
      {"heads6_kv2_dim80_chunks150", 6, 2, 80, 72, 56, 131, false, true, false, {150, true}},
  };
  return shapes;
}

// A rollout on a GPU has none.
inline const std::vector<ExactShape>& ExpertShapes() {
  static const ExpertSpec few = {
      .num_experts = 6, .intermediate_size = 40, .routing = {.top_k = 2, .normalize = true}};
  static const ExpertSpec many = {.num_experts = 64,
                                  .intermediate_size = 19,
                                  .routing = {.top_k = 5},
                                  .shared_intermediate_size = 50};
  // As DeepSeek-V3's.
  static const ExpertSpec grouped = {.num_experts = 24,
                                     .intermediate_size = 24,
                                     .routing = {.top_k = 4,
                                                 .normalize = true,
                                                 .score = RoutingSpec::Score::kSigmoid,
                                                 .correction_bias = true,
                                                 .num_groups = 4,
                                                 .top_groups = 2,
                                                 .group_score = RoutingSpec::GroupScore::kSumOfTwo,
                                                 .scale = 2.5},
                                     .shared_intermediate_size = 30,
                                     .shared_gate = false};
  // As Llama 4's.
  static const ExpertSpec of_inputs = {
      .num_experts = 6,
      .intermediate_size = 24,
      .routing = {.top_k = 2, .score = RoutingSpec::Score::kSigmoidOfChosen, .weigh_inputs = true},
      .shared_intermediate_size = 30,
      .shared_gate = false};
  // As gpt-oss'.
  static const ExpertSpec with_biases = {.num_experts = 8,
                                         .intermediate_size = 37,
                                         .routing = {.top_k = 3, .normalize = true, .bias = true},
                                         .activation = Activation::kClampedSwiglu,
                                         .bias = true};
  // As Gemma 4's.
  static const ExpertSpec beside = {.num_experts = 6,
                                    .intermediate_size = 24,
                                    .routing = {.top_k = 2,
                                                .normalize = true,
                                                .norm = NormSpec{},
                                                .logit_scale = 0.3,
                                                .expert_scales = true},
                                    .activation = Activation::kGeluTanh,
                                    .beside_dense = true};
  static const std::vector<ExactShape> shapes = {
      {"experts6_top2", 4, 2, 32, 48, 80, 131, false, true, false, 0, few},
      {"experts64_top5_shared", 7, 1, 64, 56, 72, 515, true, false, true, 0, many},
      {"experts24_in_groups", 4, 2, 32, 48, 80, 131, false, true, false, 0, grouped},
      {"experts8_with_biases", 4, 2, 32, 48, 80, 131, true, false, false, 20, with_biases},
      {"experts6_of_inputs", 4, 2, 32, 48, 80, 131, false, false, false, {36, true}, of_inputs},
      {"experts6_beside_dense", 4, 2, 32, 48, 80, 131, false, true, false, 0, beside},
  };
  return shapes;
}

inline const std::vector<ExactShape>& VariedShapes() {
  static const std::vector<ExactShape> shapes = {
      {"varied_layers", 4, 2, 32, 48, 83, 131, false, false, false, 0, std::nullopt, true},
      {"varied_layers_tied", 7, 1, 64, 56, 72, 515, true, false, true, 0, std::nullopt, true},
  };
  return shapes;
}

// Values of another size than keys, and latent attention.
inline const std::vector<ExactShape>& LatentShapes() {
  const auto shape = [](const char* name, int64_t heads, int64_t kv_heads, int64_t head_dim,
                        int64_t v_head_dim, std::optional<LatentSpec> latent) {
    ExactShape shape{name, heads, kv_heads, head_dim, 48, 80, 131};
    shape.v_head_dim = v_head_dim;
    shape.latent = latent;
    return shape;
  };
  static const std::vector<ExactShape> shapes = {
      shape("heads6_kv2_dim20_values12", 6, 2, 20, 12, std::nullopt),
      shape("latent24_rope8_of24_values16", 4, 4, 24, 16,
            LatentSpec{.q_rank = 20, .kv_rank = 24, .rope_dim = 8, .bias = true}),
      shape("latent40_rope12_of44_values48_no_q_rank", 3, 3, 44, 48,
            LatentSpec{.kv_rank = 40, .rope_dim = 12}),
  };
  return shapes;
}

// Layers whose caches differ, of a size that others' divides and of one that it does not.
inline const std::vector<ExactShape>& UnlikeShapes() {
  const auto shape = [](const char* name, const AttentionSpec& last) {
    ExactShape shape{name, 6, 1, 24, 48, 80, 131};
    shape.v_head_dim = 12;
    shape.last = last;
    return shape;
  };
  static const std::vector<ExactShape> shapes = {
      shape("twice_the_kv_heads_window37", {.num_heads = 6,
                                            .num_kv_heads = 2,
                                            .head_dim = 24,
                                            .v_head_dim = 12,
                                            .sinks = true,
                                            .value_scale = 0.7,
                                            .window = 37}),
      shape("other_heads_window20",
            {.num_heads = 3, .num_kv_heads = 3, .head_dim = 44, .v_head_dim = 20, .window = 20}),
      shape("values_are_keys", {.num_heads = 6,
                                .num_kv_heads = 2,
                                .head_dim = 40,
                                .qk_norm = QkNormSpec{},
                                .value_norm = NormSpec{.weight = false},
                                .values_are_keys = true,
                                .scale = 1.0}),
  };
  return shapes;
}

// Linear attention before full attention: heads that fill no register, groups of value heads, and a
// convolution over one token.
inline const std::vector<ExactShape>& LinearShapes() {
  const auto shape = [](const char* name, const DeltaSpec& delta) {
    ExactShape shape{name, 4, 2, 20, 48, 80, 131, false, true};
    shape.delta = delta;
    return shape;
  };
  static const std::vector<ExactShape> shapes = {
      shape("linear2_of4_keys12_values20", {.num_key_heads = 2,
                                            .num_value_heads = 4,
                                            .key_dim = 12,
                                            .value_dim = 20,
                                            .kernel_size = 4}),
      shape("linear3_keys33_values7", {.num_key_heads = 3,
                                       .num_value_heads = 3,
                                       .key_dim = 33,
                                       .value_dim = 7,
                                       .kernel_size = 3}),
      shape("linear1_of2_keys64_values80", {.num_key_heads = 1,
                                            .num_value_heads = 2,
                                            .key_dim = 64,
                                            .value_dim = 80,
                                            .kernel_size = 1}),
  };
  return shapes;
}

// What layers read besides the stream.
inline const std::vector<ExactShape>& SharedShapes() {
  const auto shape = [](const char* name, bool qk_norm) {
    return ExactShape{name, 4, 2, 32, 48, 80, 131, false, qk_norm};
  };
  static const std::vector<ExactShape> shapes = [&] {
    std::vector<ExactShape> all = {shape("shared_keys_window37", false),
                                   shape("layer_inputs", false),
                                   shape("shared_keys_and_layer_inputs", true)};
    all[0].shared_window = 37;
    all[1].input_size = 12;
    all[2].shared = true;
    return all;
  }();
  return shapes;
}

// Its products add up several parts of k on a GPU.
inline const ExactShape kWideShape = {"intermediate1100", 4, 2, 32, 48, 1100, 131};

}  // namespace tandem::model

#endif  // TANDEM_TESTS_COMMON_MODEL_EXACT_SHAPES_H_
