// The parameters that layers declare besides those of attention, and how they begin.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/model/arena.h"
#include "common/model/parameter_table.h"
#include "common/model/random_init.h"
#include "tests/support/varied_layers.h"

namespace tandem::model {
namespace {

using ::testing::ElementsAre;

ModelSpec VariedSpec() {
  ModelSpec spec;
  spec.vocab_size = 40;
  spec.hidden_size = 16;
  spec.max_position_embeddings = 32;
  LayerSpec layer;
  layer.feed_forward.intermediate_size = 24;
  layer.attention.num_heads = 4;
  layer.attention.num_kv_heads = 2;
  layer.attention.head_dim = 4;
  spec.layers.assign(1, layer);
  tandem::testing::VaryLayers(spec);
  return spec;
}

// The names of a stage's tensors without the prefix of its layer, but for attention's.
std::vector<std::string> NamesOf(const ParameterTable& table, int stage) {
  const std::string prefix =
      stage == 0 ? "model." : "model.layers." + std::to_string(stage - 1) + ".";
  std::vector<std::string> names;
  for (const int index : table.stage_parameters(stage)) {
    for (const Segment& segment : table.parameter(index).segments) {
      const bool has_prefix = segment.name.rfind(prefix, 0) == 0;
      const std::string name = has_prefix ? segment.name.substr(prefix.size()) : segment.name;
      if (name.rfind("self_attn.", 0) != 0) names.push_back(name);
    }
  }
  return names;
}

TEST(LayerParameters, AreNamedForTheirPlaces) {
  const ParameterTable table(VariedSpec());
  EXPECT_THAT(NamesOf(table, 0), ElementsAre("embed_tokens.weight", "embed_positions.weight",
                                             "embed_norm.weight", "embed_norm.bias"));
  EXPECT_THAT(NamesOf(table, 1),
              ElementsAre("input_layernorm.weight", "input_layernorm.bias", "mlp.up_proj.weight",
                          "mlp.up_proj.bias", "mlp.down_proj.weight", "mlp.down_proj.bias"));
  EXPECT_THAT(
      NamesOf(table, 2),
      ElementsAre("input_layernorm.weight", "post_self_attn_layernorm.weight",
                  "post_attention_layernorm.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight",
                  "mlp.down_proj.weight", "post_mlp_layernorm.weight"));
  EXPECT_THAT(
      NamesOf(table, 3),
      ElementsAre("post_self_attn_layernorm.weight", "mlp.up_proj.weight", "mlp.down_proj.weight",
                  "mlp.act_fn.alpha_p", "mlp.act_fn.alpha_n", "post_mlp_layernorm.weight"));
  // Norms without weights.
  EXPECT_THAT(NamesOf(table, 4), ElementsAre("mlp.up_proj.weight", "mlp.down_proj.weight"));
  EXPECT_THAT(NamesOf(table, 5), ElementsAre("model.norm.weight", "model.norm.bias",
                                             "lm_head.weight", "lm_head.bias"));
}

TEST(LayerParameters, OfPositionsHaveARowForEachBehindTheOffset) {
  const ParameterTable table(VariedSpec());
  EXPECT_THAT(table.parameter(table.position_embedding()).shape, ElementsAre(34, 16));
}

TEST(LayerParameters, OfANewModelHaveTheValuesOfTheirKind) {
  const ModelSpec spec = VariedSpec();
  const ParameterTable table(spec);
  Arena arena(table, at::kFloat);
  RandomInit(spec, 3, arena);
  const auto all_are = [&](int index, double value) {
    const at::Tensor& parameter = arena.Get(index);
    return at::equal(parameter, at::full_like(parameter, value));
  };
  EXPECT_TRUE(all_are(table.layer(0).attention_norm.weight, 1.0));
  EXPECT_TRUE(all_are(table.layer(0).attention_norm.bias, 0.0));
  EXPECT_TRUE(all_are(table.layer(1).attention_norm.weight, 0.0)) << "counts from one";
  EXPECT_TRUE(all_are(table.lm_head_bias(), 0.0));
  // Slopes of 0.8: softplus(alpha_p), and 0.5 + softplus(alpha_n).
  const at::Tensor slopes = at::softplus(arena.Get(table.layer(2).feed_forward.alphas));
  EXPECT_TRUE(at::allclose(slopes, at::tensor({0.8f, 0.3f}), 1e-6, 1e-6));
}

}  // namespace
}  // namespace tandem::model
