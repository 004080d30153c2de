// What Gemma 4's row reads beside what all families have, and what it refuses.
#include <gmock/gmock.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "common/model/parameter_table.h"
#include "tests/common/model/family_configs.h"
#include "tests/common/model/family_description.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

using nlohmann::json;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

json Config(const char* name) { return FamilyConfigs()[name]["config"]; }

TEST(Gemma4, FullLayersHaveHeadsOfTheirOwn) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseFamily(Config("gemma4-keys")));
  const AttentionSpec& windowed = spec.layers.front().attention;
  const AttentionSpec& full = spec.layers.back().attention;
  EXPECT_EQ(windowed.window, 8);
  EXPECT_EQ(windowed.num_kv_heads, 2);
  EXPECT_EQ(windowed.head_dim, 16);
  EXPECT_FALSE(windowed.values_are_keys);
  EXPECT_FALSE(full.window.IsLimited());
  EXPECT_EQ(full.num_kv_heads, 1);
  EXPECT_EQ(full.head_dim, 32);
  EXPECT_TRUE(full.values_are_keys);
  for (const AttentionSpec* attention : {&windowed, &full}) {
    EXPECT_EQ(attention->ScoreScale(), 1.0);
    EXPECT_EQ(attention->value_norm, (NormSpec{.eps = 1e-6, .weight = false}));
    EXPECT_TRUE(attention->qk_norm.has_value() && attention->qk_norm->IsPlain());
  }
  // Of 16 frequencies of a full head a quarter turns.
  ASSERT_EQ(spec.ropes.size(), 2);
  EXPECT_EQ(spec.ropes[full.rope].num_turning, 4);
  EXPECT_EQ(spec.ropes[full.rope].rotary_dim, 32);
  EXPECT_EQ(spec.ropes[windowed.rope].num_turning, 0);

  const ParameterTable table(spec);
  const auto rows = [&](int layer) {
    return table.parameter(table.layer(layer).attention.qkv_weight).shape[0];
  };
  EXPECT_EQ(rows(0), 4 * 16 + 2 * 2 * 16);
  EXPECT_EQ(rows(3), 4 * 32 + 32);
}

TEST(Gemma4, TheLastLayerIsFullWhateverTheListSays) {
  for (const char* types : {"given", "absent"}) {
    json config = Config("gemma4-keys");
    config.erase("per_layer_config");
    config["layer_types"] = json::array();
    for (int i = 0; i < 4; ++i) config["layer_types"].push_back("sliding_attention");
    if (types == std::string("absent")) config["layer_types"] = nullptr;
    ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseFamily(config));
    for (int i = 0; i < 4; ++i) {
      const AttentionSpec& attention = spec.layers[i].attention;
      EXPECT_EQ(attention.window.IsLimited(), i < 3) << types;
      EXPECT_EQ(attention.head_dim, i < 3 ? 16 : 512) << types;
    }
  }
}

TEST(Gemma4, SingleLayersMayHaveHeadsOfTheirOwn) {
  json config = Config("gemma4-keys");
  config["per_layer_config"] = {{"0", {{"head_dim", 8}, {"hidden_size", 32}}},
                                {"3", {{"num_key_value_heads", 4}}}};
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseFamily(config));
  const auto heads = [&](int layer) {
    const AttentionSpec& attention = spec.layers[layer].attention;
    return std::pair(attention.num_kv_heads, attention.head_dim);
  };
  EXPECT_EQ(heads(0), std::pair(int64_t{2}, int64_t{8}));
  EXPECT_EQ(heads(1), std::pair(int64_t{2}, int64_t{16}));
  EXPECT_EQ(heads(3), std::pair(int64_t{4}, int64_t{16}));
  EXPECT_EQ(spec.ropes[spec.layers[1].attention.rope].rotary_dim, 16);

  const auto refuses = [&](const json& layers, absl::StatusCode code, const char* text) {
    json other = config;
    other["per_layer_config"] = layers;
    EXPECT_THAT(ParseFamily(other),
                StatusIs(code, AllOf(HasSubstr("per_layer_config"), HasSubstr(text))));
  };
  refuses({{"4", json::object()}}, absl::StatusCode::kInvalidArgument, "layers from 0 to 3");
  refuses({{"x", json::object()}}, absl::StatusCode::kInvalidArgument, "layers from 0 to 3");
  refuses({{"1", 8}}, absl::StatusCode::kInvalidArgument, "layers from 0 to 3");
  refuses({{"1", {{"num_key_value_heads", 3}}}}, absl::StatusCode::kInvalidArgument,
          "a divisor of");
  refuses({{"2", {{"sliding_window", 4}}}}, absl::StatusCode::kUnimplemented,
          "2: \"sliding_window\" is 4");
  refuses({{"2", {{"skip", {"mlp"}}}}}, absl::StatusCode::kUnimplemented, "2: \"skip\"");
}

TEST(Gemma4, TheLastLayersReadKeysAndValuesOfTheirKind) {
  json config = Config("gemma4");
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseFamily(config));
  std::vector<int64_t> kv_layers, widths;
  for (const LayerSpec& layer : spec.layers) {
    kv_layers.push_back(layer.attention.kv_layer);
    widths.push_back(layer.feed_forward.intermediate_size);
  }
  EXPECT_THAT(kv_layers, ElementsAre(-1, -1, -1, -1, 2, 3));
  EXPECT_THAT(widths, ElementsAre(48, 48, 48, 48, 96, 96));
  // As the Hub's folders have them.
  EXPECT_THAT(spec.ignored_tensors, ::testing::Contains("model.layers.4.self_attn.k_proj.*"));

  for (const int count : {5, 6, 7}) {
    config["num_kv_shared_layers"] = count;
    EXPECT_THAT(ParseFamily(config),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_kv_shared_layers")))
        << count;
  }
  config["num_kv_shared_layers"] = nullptr;
  ASSERT_OK_AND_ASSIGN(const ModelSpec whole, ParseFamily(config));
  EXPECT_EQ(whole.layers.back().attention.kv_layer, -1);
}

TEST(Gemma4, LayersTakeInputsOfTheirOwn) {
  json config = Config("gemma4");
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(config, "m"));
  const LayerInputSpec inputs{.vocab_size = 96, .size = 6};
  EXPECT_EQ(spec.layer_inputs, inputs);
  EXPECT_EQ(spec.layers[3].input_gate, (InputGateSpec{.size = 6}));
  config.erase("hidden_size_per_layer_input");
  config.erase("vocab_size_per_layer_input");
  ASSERT_OK_AND_ASSIGN(const ModelSpec usual, ParseModelSpec(config, "m"));
  EXPECT_EQ(usual.layer_inputs->size, 256);
  EXPECT_EQ(usual.layer_inputs->vocab_size, 262144);

  config["vocab_size_per_layer_input"] = 95;
  EXPECT_THAT(ParseModelSpec(config, "m"), StatusIs(absl::StatusCode::kInvalidArgument,
                                                    AllOf(HasSubstr("95"), HasSubstr("96"))));
  config["hidden_size_per_layer_input"] = int64_t{1} << 22;
  EXPECT_THAT(ParseModelSpec(config, "m"), StatusIs(absl::StatusCode::kInvalidArgument,
                                                    HasSubstr("hidden_size_per_layer_input")));
}

TEST(Gemma4, ExpertsStandBesideDenseLayers) {
  json config = Config("gemma4-experts");
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseFamily(config));
  const ExpertSpec& experts = spec.layers[1].experts.value();
  EXPECT_TRUE(experts.beside_dense);
  EXPECT_TRUE(spec.layers[1].has_dense());
  EXPECT_EQ(experts.routing.norm, NormSpec{});
  EXPECT_DOUBLE_EQ(experts.routing.logit_scale, 1.0 / std::sqrt(32.0));
  const ParameterTable table(spec);
  EXPECT_GE(table.layer(1).feed_forward.gate_up_weight, 0);
  EXPECT_GE(table.layer(1).experts->router.expert_scales, 0);
  EXPECT_GE(table.layer(1).beside.after_experts.weight, 0);

  for (const json& none : {json(nullptr), json(0)}) {
    config["num_experts"] = none;
    EXPECT_THAT(ParseFamily(config),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("num_experts"), HasSubstr("from 1 on"))));
  }
  config["enable_moe_block"] = false;
  ASSERT_OK_AND_ASSIGN(const ModelSpec dense, ParseFamily(config));
  EXPECT_FALSE(dense.layers[1].experts.has_value());
}

TEST(Gemma4, AShareOfFrequenciesTurns) {
  json config = Config("gemma4-keys");
  json& full = config["rope_parameters"]["full_attention"];
  full["factor"] = 2.0;
  full["partial_rotary_factor"] = 1.0;
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseFamily(config));
  EXPECT_EQ(spec.ropes.back().num_turning, 0);
  EXPECT_EQ(spec.ropes.back().linear_factor, 2.0);
  for (const double share : {1.01, 0.06, 0.0, -0.5}) {
    full["partial_rotary_factor"] = share;
    EXPECT_THAT(ParseFamily(config),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("full_attention"), HasSubstr("partial_rotary_factor"))))
        << share;
  }
}

TEST(Gemma4, TheLayersNumberIsNotTrained) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseFamily(Config("gemma4-keys")));
  const ParameterTable table(spec);
  const Parameter& scalar = table.parameter(table.layer(2).output_scalar);
  EXPECT_EQ(scalar.name, "model.layers.2.layer_scalar");
  EXPECT_THAT(scalar.shape, ElementsAre(1));
  EXPECT_FALSE(scalar.trainable);
  EXPECT_FALSE(scalar.moved);
  EXPECT_EQ(scalar.segments[0].initial_value, 1.0f);
}

TEST(Gemma4, AModelWithTowersIsRefusedWithTheWayToItsLanguageModel) {
  const json config = {{"architectures", {"Gemma4ForConditionalGeneration"}},
                       {"model_type", "gemma4"},
                       {"text_config", Config("gemma4")}};
  const auto way = AllOf(HasSubstr("Gemma4ForCausalLM, its language model"),
                         HasSubstr("save_pretrained(OUT)"), Not(HasSubstr("nearest")));
  EXPECT_THAT(ParseModelSpec(config, "m"),
              StatusIs(absl::StatusCode::kUnimplemented, AllOf(HasSubstr("architectures"), way)));
  EXPECT_THAT(ParseModelSpec({{"model_type", "gemma4"}}, "m"),
              StatusIs(absl::StatusCode::kUnimplemented, AllOf(HasSubstr("model_type"), way)));
}

}  // namespace
}  // namespace tandem::model
