#include "tests/common/model/family_description.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/families/family_table.h"
#include "common/model/families/row_config.h"

namespace tandem::model {
namespace {

// Appends " KEY=VALUE" unless the value is the plain one.
template <typename T>
void Say(std::string& text, const char* key, T value, T plain) {
  if (value != plain) absl::StrAppend(&text, " ", key, "=", value);
}

void Say(std::string& text, const char* word, bool holds) {
  if (holds) absl::StrAppend(&text, " ", word);
}

std::string DescribeNorm(const NormSpec& norm) {
  std::string text = norm.kind == NormKind::kLayer ? "layer" : "rms";
  Say(text, "eps", norm.eps, 1e-6);
  Say(text, "no_weight", !norm.weight);
  Say(text, "bias", norm.bias);
  Say(text, "1+w", norm.unit_offset);
  return text;
}

// "4x16 top2 softmax normalized": 4 experts of 16 units, of which a token reaches 2.
std::string DescribeExperts(const ExpertSpec& experts) {
  const RoutingSpec& routing = experts.routing;
  constexpr const char* kScores[] = {"softmax", "sigmoid", "sparsemixer", "sigmoid_of_chosen"};
  std::string text = absl::StrCat(experts.num_experts, "x", experts.intermediate_size, " top",
                                  routing.top_k, " ", kScores[static_cast<int>(routing.score)]);
  Say(text, "normalized", routing.normalize);
  Say(text, "router_bias", routing.bias);
  Say(text, "corrected", routing.correction_bias);
  if (routing.HasGroups()) {
    absl::StrAppend(&text, " groups=", routing.top_groups, "/", routing.num_groups);
    Say(text, "by_two", routing.group_score == RoutingSpec::GroupScore::kSumOfTwo);
  }
  Say(text, "times", routing.scale, 1.0);
  Say(text, "weigh_inputs", routing.weigh_inputs);
  Say(text, "jitter", routing.jitter, 0.0);
  Say(text, "clamped", experts.activation == Activation::kClampedSwiglu);
  Say(text, "bias", experts.bias);
  Say<int64_t>(text, "shared", experts.shared_intermediate_size, 0);
  Say(text, "gate", experts.shared_intermediate_size > 0 && experts.shared_gate);
  Say(text, "shared_bias", experts.shared_bias);
  Say(text, "beside_dense", experts.beside_dense);
  Say(text, "router_norm", routing.norm.has_value());
  Say(text, "logits", routing.logit_scale, 1.0);
  Say(text, "expert_scales", routing.expert_scales);
  return text;
}

}  // namespace

absl::StatusOr<ModelSpec> ParseFamily(const nlohmann::json& config) {
  const std::string architecture = config["architectures"][0].get<std::string>();
  const v1::FamilyRow* const row = Families().FindArchitecture(architecture);
  if (row == nullptr) return absl::NotFoundError(architecture);
  return ParseRow(*row, ConfigReader(config, "m/config.json"));
}

std::string DescribeRope(const RopeSpec& rope) {
  std::string text = absl::StrCat("theta=", rope.theta);
  Say<int64_t>(text, "dim", rope.rotary_dim, 0);
  Say(text, "pairs", rope.interleaved);
  Say(text, "linear", rope.linear_factor, 1.0);
  Say<int64_t>(text, "turning", rope.num_turning, 0);
  if (rope.llama3) Say(text, "llama3", rope.llama3->factor, 0.0);
  if (rope.yarn) Say(text, "yarn", rope.yarn->factor, 0.0);
  if (rope.longrope) Say(text, "longrope", rope.longrope->long_factor.back(), 0.0);
  return text;
}

std::string Describe(const ModelSpec& spec) {
  const LayerSpec& layer = spec.layers.front();
  const AttentionSpec& attention = layer.attention;
  const FeedForwardSpec& feed_forward = layer.feed_forward;
  std::string text =
      absl::StrCat(attention.num_heads, "/", attention.num_kv_heads, "x", attention.head_dim, " ",
                   feed_forward.intermediate_size, "; ", DescribeNorm(layer.norm));
  Say(text, "after", layer.norm_placement == NormPlacement::kAfter);
  Say(text, "sandwich", layer.norm_placement == NormPlacement::kSandwich);
  Say(text, "parallel", layer.parallel);
  Say(text, "shared", layer.shared_norm);
  Say(text, "residual", layer.residual_multiplier, 1.0);
  Say(text, "scalar", layer.output_scalar);
  text += ";";
  Say<int64_t>(text, "values", attention.v_head_dim, 0);
  if (attention.latent) {
    const LatentSpec& latent = *attention.latent;
    absl::StrAppend(&text, " latent ", latent.q_rank, " ", latent.kv_rank, "+", latent.rope_dim);
    Say(text, "down_bias", latent.bias);
    EXPECT_EQ(latent.norm, NormSpec{});
  }
  Say(text, "qkv_bias", attention.qkv_bias);
  Say(text, "output_bias", attention.output_bias);
  if (attention.qk_norm) {
    constexpr const char* kOver[] = {"head", "each_head", "all_heads"};
    absl::StrAppend(&text, " qk_norm=", kOver[static_cast<int>(attention.qk_norm->over)]);
    Say(text, "after_rotation", attention.qk_norm->after_rotation);
    Say(text, "no_weight", !attention.qk_norm->norm.weight && layer.norm.weight);
    EXPECT_FALSE(attention.qk_norm->norm.bias);
  }
  Say(text, "clip", attention.clip_qkv, 0.0);
  Say(text, "scale", attention.scale, 0.0);
  Say(text, "last_scale", spec.layers.back().attention.scale, attention.scale);
  Say(text, "cap", attention.softcap, 0.0);
  Say(text, "alibi", attention.alibi_scale, 0.0);
  Say(text, "sinks", attention.sinks);
  Say<double>(text, "times", attention.value_scale, 1.0);
  // The first layer with a window, where it has other heads than the first.
  for (const LayerSpec& other : spec.layers) {
    const AttentionSpec& heads = other.attention;
    if (!heads.window.IsLimited()) continue;
    if (heads.num_kv_heads == attention.num_kv_heads && heads.head_dim == attention.head_dim) break;
    absl::StrAppend(&text, " windowed ", heads.num_heads, "/", heads.num_kv_heads, "x",
                    heads.head_dim, "+", heads.value_dim());
    Say(text, "sinks", heads.sinks);
    break;
  }
  // The last layer, where it has other heads than the first.
  const AttentionSpec& last = spec.layers.back().attention;
  if (last.num_kv_heads != attention.num_kv_heads || last.head_dim != attention.head_dim) {
    absl::StrAppend(&text, " last ", last.num_heads, "/", last.num_kv_heads, "x", last.head_dim);
  }
  Say(text, "value_norm", attention.value_norm.has_value());
  Say(text, "values_are_keys", attention.values_are_keys);
  Say(text, "last_values_are_keys", last.values_are_keys);
  Say<int64_t>(text, "last_kv", last.kv_layer, -1);
  Say(text, "output_gate", attention.output_gate);
  if (attention.delta) {
    const DeltaSpec& delta = *attention.delta;
    absl::StrAppend(&text, " linear ", delta.num_key_heads, "x", delta.key_dim, " ",
                    delta.num_value_heads, "x", delta.value_dim, " kernel=", delta.kernel_size);
    Say(text, "eps", delta.norm_eps, 1e-6);
    text += " in";
    for (size_t i = 0; i < spec.layers.size(); ++i) {
      if (spec.layers[i].attention.delta) absl::StrAppend(&text, " ", i);
    }
  }
  // The last layer's: in Llama 4 the first ones have none.
  if (const auto& scale = spec.layers.back().attention.query_position_scale) {
    Say(text, "beta", scale->beta, 0.0);
    Say(text, "last_beta", !attention.query_position_scale.has_value());
  }
  text += ";";
  constexpr const char* kActivations[] = {"silu", "gelu",  "gelu_tanh", "quick_gelu",
                                          "relu", "relu2", "xielu",     "clamped_swiglu"};
  const int activation = static_cast<int>(feed_forward.activation);
  Say(text, kActivations[activation], activation != 0);
  Say(text, "ungated", !feed_forward.gated);
  Say(text, "mlp_bias", feed_forward.bias);
  Say<int64_t>(text, "last", spec.layers.back().feed_forward.intermediate_size,
               feed_forward.intermediate_size);
  // The last layer's: in some families the first ones are dense.
  if (const auto& experts = spec.layers.back().experts) {
    absl::StrAppend(&text, " experts ", DescribeExperts(*experts));
    Say(text, "first_dense", !layer.experts.has_value());
  }
  text += ";";
  Say(text, "embedding", spec.embedding_multiplier, 1.0);
  if (spec.position_embedding) {
    Say<int64_t>(text, "positions_from", spec.position_embedding->offset, -1);
  }
  Say(text, "embedding_norm", spec.embedding_norm.has_value());
  if (spec.layer_inputs) {
    absl::StrAppend(&text, " layer_inputs=", spec.layer_inputs->vocab_size, "x",
                    spec.layer_inputs->size);
  }
  Say(text, "tied", spec.tie_word_embeddings);
  Say(text, "head_bias", spec.head_bias);
  Say(text, "logits", spec.logit_scale, 1.0);
  Say(text, "logit_cap", spec.logit_softcap, 0.0);
  std::vector<std::string> windows;
  std::vector<int> ropes;
  for (const LayerSpec& of_spec : spec.layers) {
    const Window& window = of_spec.attention.window;
    windows.push_back(absl::StrCat(window.size, window.chunked ? "c" : ""));
    ropes.push_back(of_spec.attention.rope);
  }
  absl::StrAppend(&text, "; windows ", absl::StrJoin(windows, " "), "; ropes ",
                  absl::StrJoin(ropes, " "));
  for (const RopeSpec& rope : spec.ropes) absl::StrAppend(&text, "; ", DescribeRope(rope));
  return text;
}

}  // namespace tandem::model
