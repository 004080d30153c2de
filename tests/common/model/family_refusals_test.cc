// What families refuse in a config.json, and what its nulls and absent keys mean.
#include <gmock/gmock.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/common/model/family_configs.h"
#include "tests/common/model/family_description.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

using nlohmann::json;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Families, RefuseWhatNoSwitchHas) {
  const auto error = [](const char* name, const char* key, const json& value) {
    json config = FamilyConfigs()[name]["config"];
    config[key] = value;
    const absl::Status status = ParseFamily(config).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnimplemented,
                                 AllOf(HasSubstr("m/config.json"), HasSubstr("supported: "),
                                       HasSubstr(absl::StrCat("\"", key, "\" is ", value.dump())))))
        << name;
    return std::string(status.message());
  };
  error("phi", "qk_layernorm", true);
  error("gpt2", "add_cross_attention", true);
  error("opt", "do_layer_norm_before", false);
  EXPECT_THAT(error("opt", "word_embed_proj_dim", 16), AllOf(HasSubstr("16"), HasSubstr("32")));
  error("bloom", "apply_residual_connection_post_layernorm", true);
  error("falcon-40b", "parallel_attn", false);
  error("gemma3", "use_bidirectional_attention", true);
  error("gemma4", "use_bidirectional_attention", "all");
  error("mpt", "no_bias", false);
  error("mixtral", "router_jitter_noise", 0.1);
  error("olmoe", "clip_qkv", 8.0);
  error("gpt_oss", "swiglu_limit", 5.0);
  error("glm4_moe", "scoring_func", "softmax");
  error("deepseek_v2", "norm_topk_prob", true);
  error("deepseek_v3", "topk_method", "greedy");
  error("mimo_v2_flash", "scoring_func", "softmax");
  error("mimo_v2_flash", "n_shared_experts", 1);
  error("minimax_m2", "use_qk_norm", false);
  error("qwen3_moe", "use_sliding_window", true);
  error("llama", "hidden_act", "mish");
  error("llama", "hidden_act", "xielu");
  error("gptj", "scale_attn_weights", false);
  // One kind of layer whatever the list says, as in transformers.
  for (const char* name : {"mistral", "starcoder2"}) {
    error(name, "layer_types", {"sliding_attention", "full_attention"});
  }
  json mpt = FamilyConfigs()["mpt"]["config"];
  mpt["attn_config"]["qk_ln"] = true;
  EXPECT_THAT(
      ParseFamily(mpt),
      StatusIs(absl::StatusCode::kUnimplemented,
               HasSubstr("m/config.json: attn_config: \"qk_ln\" is true; supported: false")));
}

TEST(Families, NullIsNoLimit) {
  json config = FamilyConfigs()["gemma2"]["config"];
  for (const char* key :
       {"final_logit_softcapping", "attn_logit_softcapping", "layer_types", "sliding_window"}) {
    config[key] = nullptr;
  }
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseFamily(config));
  EXPECT_EQ(spec.logit_softcap, 0.0);
  EXPECT_EQ(spec.layers.front().attention.softcap, 0.0);
  EXPECT_EQ(spec.layers.front().attention.window, 0);
}

TEST(Families, Llama4ReadsItsLists) {
  json config = FamilyConfigs()["llama4"]["config"];
  config.update({{"use_qk_norm", false},
                 {"attn_temperature_tuning", false},
                 {"attention_chunk_size", nullptr},
                 {"layer_types", nullptr},
                 {"no_rope_layers", {0, 1, 1, 1}},
                 {"moe_layers", {0, 2}}});
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseFamily(config));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const AttentionSpec& attention = spec.layers[i].attention;
    EXPECT_FALSE(attention.qk_norm.has_value());
    EXPECT_FALSE(attention.query_position_scale.has_value());
    EXPECT_EQ(attention.window, Window(0));
    EXPECT_EQ(attention.rope, i == 0 ? -1 : 0);
    EXPECT_EQ(spec.layers[i].experts.has_value(), i % 2 == 0);
  }

  // "layer_types" counts before the layers that rotate.
  config["attention_chunk_size"] = 24;
  config["layer_types"] = {"chunked_attention", "full_attention", "full_attention",
                           "chunked_attention"};
  ASSERT_OK_AND_ASSIGN(const ModelSpec listed, ParseFamily(config));
  EXPECT_EQ(listed.layers[0].attention.window, Window(24, /*in_chunks=*/true));
  EXPECT_EQ(listed.layers[1].attention.window, Window(0));
  config["layer_types"][1] = "sliding_attention";
  EXPECT_THAT(ParseFamily(config),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("chunked_attention")));
  config["layer_types"][1] = "full_attention";
  config["no_rope_layers"] = {0, 1};
  EXPECT_THAT(ParseFamily(config),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no_rope_layers")));
}

TEST(Families, TheFirstGemmaReleasesMeanTheApproximatedGelu) {
  json config = FamilyConfigs()["gemma"]["config"];
  config["hidden_act"] = "gelu";
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseFamily(config));
  EXPECT_EQ(spec.layers.front().feed_forward.activation, Activation::kGeluTanh);
}

TEST(Families, OnlyGemmaRoundsTheFactorOfTheEmbedding) {
  const json cases = FamilyConfigs();
  for (const char* name : {"gemma", "gemma2", "gemma3", "granite", "hyperclovax"}) {
    ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseFamily(cases[name]["config"]));
    EXPECT_EQ(spec.embedding_multiplier_rounds, std::string(name).starts_with("gemma")) << name;
  }
}

TEST(Families, LayersThatRotateByTheirWindowNeedOne) {
  json config = FamilyConfigs()["cohere2"]["config"];
  config["sliding_window"] = nullptr;
  config.erase("layer_types");
  EXPECT_THAT(ParseFamily(config),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("sliding_window")));
}

TEST(Families, LayersWithAWindowHaveHeadsOfTheirOwn) {
  const json written = FamilyConfigs()["mimo_v2_flash"]["config"];
  json config = written;
  config.update({{"swa_num_attention_heads", 6},
                 {"swa_num_key_value_heads", 3},
                 {"swa_head_dim", 32},
                 {"swa_v_head_dim", 32},
                 {"add_full_attention_sink_bias", true},
                 {"add_swa_attention_sink_bias", false},
                 {"attention_value_scale", nullptr}});
  config["rope_parameters"]["sliding_attention"]["partial_rotary_factor"] = 1.0;
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseFamily(config));
  AttentionSpec full{.num_heads = 4, .num_kv_heads = 1, .head_dim = 24, .v_head_dim = 8};
  full.sinks = true;
  EXPECT_EQ(spec.layers[0].attention, full);
  AttentionSpec windowed{.num_heads = 6, .num_kv_heads = 3, .head_dim = 32};
  windowed.rope = 1;
  windowed.window = 8;
  EXPECT_EQ(spec.layers[1].attention, windowed);
  EXPECT_EQ(spec.layers[5].attention, full);
  ASSERT_EQ(spec.ropes.size(), 2);
  EXPECT_EQ(spec.ropes[0].rotary_dim, 8);
  EXPECT_EQ(spec.ropes[1].rotary_dim, 32) << "whole heads, which are larger than the first layer's";

  const auto expect_error = [&](const char* key, const json& value, const char* text) {
    json other = written;
    other[key] = value;
    EXPECT_THAT(ParseFamily(other), StatusIs(absl::StatusCode::kInvalidArgument,
                                             AllOf(HasSubstr(key), HasSubstr(text))));
  };
  expect_error("swa_num_key_value_heads", 3, "a divisor of");
  expect_error("swa_head_dim", 0, "an integer from 1");
  expect_error("sliding_window_size", -1, "m/config.json");
  json older = written;
  older.erase("layer_types");
  for (const json& list : {json({0, 1, 1}), json({0, 1, 1, 1, 1, 2}), json(1)}) {
    older["hybrid_layer_pattern"] = list;
    EXPECT_THAT(ParseFamily(older), StatusIs(absl::StatusCode::kInvalidArgument,
                                             AllOf(HasSubstr("hybrid_layer_pattern"),
                                                   HasSubstr("6 numbers, each 0 or 1"))));
  }
  older["hybrid_layer_pattern"] = {1, 0, 0, 1, 0, 0};
  ASSERT_OK_AND_ASSIGN(const ModelSpec listed, ParseFamily(older));
  EXPECT_EQ(listed.layers[0].attention.num_kv_heads, 2);
  EXPECT_EQ(listed.layers[1].attention.num_kv_heads, 1);
}

TEST(Families, Phi3ScalesItsRotationFrom4096PositionsUnlessToldOtherwise) {
  json config = FamilyConfigs()["phi3"]["config"];
  const json scaling = {{"type", "longrope"},
                        {"short_factor", {1.0, 1.0, 1.0, 1.0}},
                        {"long_factor", {2.0, 2.0, 2.0, 2.0}}};
  for (const char* key : {"rope_parameters", "original_max_position_embeddings"}) config.erase(key);
  config["partial_rotary_factor"] = 0.5;
  config["rope_scaling"] = scaling;
  config["max_position_embeddings"] = 131072;
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseFamily(config));
  ASSERT_TRUE(spec.ropes.at(0).longrope.has_value());
  EXPECT_EQ(spec.ropes[0].longrope->original_max_position_embeddings, 4096);
}

TEST(Families, HeadsOfLatentAttentionHaveKeysOfTheirOwn) {
  json config = FamilyConfigs()["deepseek_v3"]["config"];
  config["num_key_value_heads"] = 2;
  EXPECT_THAT(ParseFamily(config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("num_key_value_heads"), HasSubstr("num_attention_heads"))));
  config["num_key_value_heads"] = nullptr;
  EXPECT_OK(ParseFamily(config).status());
  config["qk_rope_head_dim"] = 5;
  EXPECT_THAT(ParseFamily(config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("qk_rope_head_dim"), HasSubstr("even"))));
  config["qk_rope_head_dim"] = 4;
  config["rope_parameters"]["partial_rotary_factor"] = 0.5;
  EXPECT_THAT(ParseFamily(config),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("partial_rotary_factor")));
}

TEST(Families, LinearAttentionStandsBesideFullAttention) {
  const json written = FamilyConfigs()["qwen3_next"]["config"];
  const auto expect_error = [&](const char* key, const json& value, absl::StatusCode code,
                                const char* text) {
    json config = written;
    config[key] = value;
    EXPECT_THAT(ParseFamily(config), StatusIs(code, AllOf(HasSubstr(key), HasSubstr(text))));
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const json linear = "linear_attention";
  expect_error("layer_types", {linear, linear, linear, linear}, kInvalid, "full_attention");
  expect_error("layer_types", {linear, "full_attention"}, kInvalid, "num_hidden_layers");
  expect_error("layer_types", {linear, linear, linear, "sliding_attention"},
               absl::StatusCode::kUnimplemented, "linear_attention, full_attention");
  expect_error("linear_num_value_heads", 3, kInvalid, "a multiple of \"linear_num_key_heads\", 2");
  expect_error("linear_conv_kernel_dim", 1000, kInvalid, "64");
  expect_error("hidden_act", "gelu", absl::StatusCode::kUnimplemented, "silu");

  json older = written;
  older.erase("layer_types");
  older["full_attention_interval"] = 5;
  EXPECT_THAT(ParseFamily(older),
              StatusIs(kInvalid, AllOf(HasSubstr("full_attention_interval"),
                                       HasSubstr("a layer has full attention"))));
  // A family without it.
  json qwen3 = FamilyConfigs()["qwen3"]["config"];
  qwen3["layer_types"] = {linear, "full_attention"};
  EXPECT_THAT(ParseFamily(qwen3),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("linear_attention")));
}

TEST(Families, NullHeadsAreTheQueryHeads) {
  json config = FamilyConfigs()["mistral"]["config"];
  config["num_key_value_heads"] = nullptr;
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseFamily(config));
  EXPECT_EQ(spec.layers.front().attention.num_kv_heads, 4);
}

TEST(Families, TheRotationOfTheClassCountsWhereConfigHasNone) {
  json config = FamilyConfigs()["cwm"]["config"];
  config.erase("rope_parameters");
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseFamily(config));
  ASSERT_EQ(spec.ropes.size(), 1);
  EXPECT_EQ(DescribeRope(spec.ropes[0]), "theta=1e+06 llama3=16");
}

}  // namespace
}  // namespace tandem::model
