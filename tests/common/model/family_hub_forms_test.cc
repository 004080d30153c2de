// Every family's row reads the older form of config.json, that of the Hub, as the newer one.
#include <gmock/gmock.h>

#include <vector>

#include "tests/common/model/family_configs.h"
#include "tests/common/model/family_description.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

using nlohmann::json;

// The older form of a case: without the keys of transformers 5 that are named, with others.
struct HubForm {
  const char* name;
  std::vector<const char*> absent;
  json keys;
};

json InHubForm(const HubForm& form) {
  json config = FamilyConfigs()[form.name]["config"];
  for (const char* key : form.absent) {
    EXPECT_EQ(config.erase(key), 1) << form.name << ": " << key;
  }
  config.update(form.keys);
  config["torch_dtype"] = "float16";
  return config;
}

json ScaledYarn() {
  return {{"type", "yarn"},
          {"factor", 2.0},
          {"mscale", 0.7},
          {"mscale_all_dim", 0.8},
          {"original_max_position_embeddings", 16}};
}

const std::vector<HubForm>& HubForms() {
  static const auto* const forms = new std::vector<HubForm>{
      {"llama",
       {"rope_parameters", "tie_word_embeddings"},
       {{"rope_theta", 10000.0}, {"rope_scaling", nullptr}}},
      {"mistral", {"rope_parameters", "head_dim"}, {{"rope_theta", 10000.0}}},
      {"ministral3",
       {"rope_parameters"},
       {{"rope_scaling",
         {{"type", "yarn"},
          {"rope_theta", 10000.0},
          {"factor", 2.0},
          {"original_max_position_embeddings", 16},
          {"llama_4_scaling_beta", 0.1}}}}},
      {"qwen2", {"rope_parameters", "layer_types"}, {{"rope_theta", 10000.0}}},
      {"seed_oss", {"rope_parameters", "head_dim"}, {{"rope_theta", 10000.0}, {"head_dim", 8}}},
      {"smollm3",
       {"rope_parameters", "layer_types", "no_rope_layers", "tie_word_embeddings"},
       {{"rope_theta", 2e6}}},
      {"llama4",
       {"rope_parameters", "layer_types", "moe_layers", "no_rope_layers", "use_qk_norm",
        "attn_temperature_tuning", "tie_word_embeddings"},
       {{"rope_theta", 500000.0}, {"rope_scaling", nullptr}, {"no_rope_layers", json::array()}}},
      {"mimo_v2_flash",
       {"rope_parameters", "layer_types", "mlp_layer_types", "rms_norm_eps", "sliding_window",
        "routed_scaling_factor"},
       {{"rope_theta", 5000000},
        {"swa_rope_theta", 10000},
        {"rope_scaling", nullptr},
        {"partial_rotary_factor", 0.334},
        {"layernorm_epsilon", 1e-5},
        {"hybrid_layer_pattern", {0, 1, 1, 1, 1, 0}},
        {"moe_layer_freq", {0, 1, 1, 1, 1, 1}},
        {"sliding_window", 7},
        {"sliding_window_size", 7},
        {"attention_chunk_size", 7},
        {"swa_num_attention_heads", 4},
        {"swa_num_key_value_heads", 2},
        {"swa_head_dim", 24},
        {"swa_v_head_dim", 8},
        {"add_full_attention_sink_bias", false},
        {"add_swa_attention_sink_bias", true},
        {"routed_scaling_factor", nullptr},
        {"n_shared_experts", nullptr},
        {"hybrid_block_size", nullptr},
        {"scoring_func", "sigmoid"},
        {"topk_method", "noaux_tc"}}},
      {"gemma4", {"per_layer_config", "use_bidirectional_attention"}, {{"global_head_dim", 32}}},
      {"gemma4-keys",
       {"per_layer_config", "rope_parameters", "tie_word_embeddings"},
       {{"global_head_dim", 32}, {"num_global_key_value_heads", 1}}},
      {"gemma4-experts",
       {"per_layer_config"},
       {{"global_head_dim", 32},
        {"num_global_key_value_heads", 1},  // counts with attention_k_eq_v alone
        {"use_bidirectional_attention", "vision"}}},
      {"arcee", {"rope_parameters"}, {{"rope_theta", 10000.0}}},
      {"apertus",
       {"rope_parameters"},
       {{"rope_theta", 12e6},
        {"rope_scaling",
         {{"rope_type", "llama3"},
          {"factor", 8.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 8192}}}}},
      {"nemotron", {"rope_parameters"}, {{"rope_theta", 10000.0}, {"partial_rotary_factor", 0.5}}},
      {"hunyuan_dense",
       {"rope_parameters"},
       {{"rope_theta", 10000.0},
        {"rope_scaling", {{"type", "dynamic"}, {"alpha", 10.0}, {"factor", 1.0}}}}},
      {"ernie4_5", {"rope_parameters", "tie_word_embeddings"}, {{"rope_theta", 500000.0}}},
      {"granite", {"rope_parameters"}, {{"rope_theta", 10000.0}, {"rope_scaling", nullptr}}},
      {"hyperclovax", {"rope_parameters", "use_post_norm"}, {{"rope_theta", 10000.0}}},
      {"olmo", {"rope_parameters"}, {{"rope_theta", 10000.0}}},
      {"olmo2", {"rope_parameters"}, {{"rope_theta", 10000.0}}},
      {"olmo3",
       {"rope_parameters", "layer_types"},
       {{"rope_theta", 500000.0},
        {"rope_scaling",
         {{"rope_type", "yarn"}, {"factor", 2.0}, {"original_max_position_embeddings", 16}}}}},
      {"exaone4", {"rope_parameters", "layer_types"}, {{"rope_theta", 10000.0}}},
      {"exaone4-full",
       {"rope_parameters"},
       {{"rope_theta", 10000.0}, {"sliding_window_pattern", nullptr}}},
      {"gemma", {"rope_parameters", "tie_word_embeddings"}, {{"rope_theta", 10000.0}}},
      {"gemma2",
       {"rope_parameters", "layer_types", "tie_word_embeddings"},
       {{"rope_theta", 10000.0}, {"hidden_act", "gelu_pytorch_tanh"}}},
      {"gemma3",
       {"rope_parameters", "layer_types", "tie_word_embeddings"},
       {{"rope_theta", 1e6}, {"rope_local_base_freq", 10000.0}, {"sliding_window_pattern", 6}}},
      {"glm", {"rope_parameters"}, {{"rope_theta", 10000.0}, {"partial_rotary_factor", 0.5}}},
      {"glm4", {"rope_parameters"}, {{"rope_theta", 10000.0}, {"partial_rotary_factor", 0.5}}},
      {"phi3",
       {"rope_parameters"},
       {{"rope_theta", 10000.0},
        {"partial_rotary_factor", 0.5},
        {"original_max_position_embeddings", 64},
        {"rope_scaling",
         {{"type", "su"},
          {"short_factor", {1.0, 1.2, 1.5, 2.0}},
          {"long_factor", {1.0, 3.0, 6.0, 9.0}}}}}},
      {"phi", {"rope_parameters"}, {{"rope_theta", 10000.0}, {"partial_rotary_factor", 0.5}}},
      {"cohere", {"rope_parameters", "tie_word_embeddings"}, {{"rope_theta", 500000.0}}},
      {"cohere2",
       {"rope_parameters", "layer_types", "tie_word_embeddings"},
       {{"rope_theta", 10000.0}, {"sliding_window_pattern", 4}}},
      {"stablelm", {"rope_parameters"}, {{"rope_theta", 10000}, {"partial_rotary_factor", 0.25}}},
      {"starcoder2", {"rope_parameters", "tie_word_embeddings"}, {{"rope_theta", 10000.0}}},
      {"gpt2", {"tie_word_embeddings", "n_inner"}, {{"n_ctx", 64}}},
      {"gpt_bigcode", {"tie_word_embeddings", "num_key_value_heads"}, {{"n_inner", nullptr}}},
      {"gpt_neox",
       {"rope_parameters", "attention_bias"},
       {{"rotary_emb_base", 10000}, {"rotary_pct", 0.25}}},
      {"gptj", {"n_inner"}, {{"rotary", true}}},
      {"opt",
       {"tie_word_embeddings", "enable_bias", "layer_norm_elementwise_affine"},
       {{"prefix", "</s>"}}},
      {"falcon",
       {"rope_parameters", "tie_word_embeddings", "num_ln_in_parallel_attn", "ffn_hidden_size",
        "activation"},
       {{"apply_residual_connection_post_layernorm", false}}},
      {"falcon-rw", {"rope_parameters", "tie_word_embeddings"}, json::object()},
      {"falcon-40b",
       {"rope_parameters", "tie_word_embeddings", "num_ln_in_parallel_attn", "ffn_hidden_size"},
       json::object()},
      {"bloom",
       {"hidden_size", "n_head", "tie_word_embeddings"},
       {{"n_embed", 32}, {"num_attention_heads", 4}, {"attention_softmax_in_fp32", true}}},
      {"mpt",
       {"tie_word_embeddings"},
       {{"attn_config",
         {{"alibi", true}, {"clip_qkv", 2.0}, {"softmax_scale", 0.3}, {"qk_ln", false}}}}},
      {"helium", {"rope_parameters"}, {{"rope_theta", 100000.0}}},
      {"cwm",
       {"rope_parameters", "layer_types"},
       {{"rope_theta", 1e6},
        {"rope_scaling",
         {{"rope_type", "llama3"},
          {"factor", 16.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 8192}}}}},
      {"mixtral", {"rope_parameters", "head_dim"}, {{"rope_theta", 1e6}}},
      {"qwen3_moe",
       {"rope_parameters", "num_local_experts"},
       {{"rope_theta", 10000.0}, {"num_experts", 4}}},
      {"olmoe", {"rope_parameters"}, {{"rope_theta", 10000.0}, {"rope_scaling", nullptr}}},
      {"phimoe", {"rope_parameters"}, {{"rope_theta", 1e6}, {"input_jitter_noise", 0.01}}},
      {"granitemoe", {"rope_parameters"}, {{"rope_theta", 10000.0}, {"rope_scaling", nullptr}}},
      {"granitemoeshared", {"rope_parameters"}, {{"rope_theta", 10000.0}}},
      {"gpt_oss",
       {"rope_parameters", "layer_types", "swiglu_alpha", "num_experts_per_tok"},
       {{"rope_theta", 150000},
        {"experts_per_token", 2},
        {"rope_scaling",
         {{"rope_type", "yarn"},
          {"factor", 32.0},
          {"beta_fast", 32.0},
          {"beta_slow", 1.0},
          {"truncate", false},
          {"original_max_position_embeddings", 4096}}}}},
      {"ernie4_5_moe",
       {"rope_parameters", "tie_word_embeddings", "moe_norm_min"},
       {{"rope_theta", 500000.0}, {"moe_layer_end_index", -1}, {"moe_gate", "topk"}}},
      {"hunyuan_moe",
       {"rope_parameters"},
       {{"rope_theta", 10000.0},
        {"rope_scaling", {{"type", "dynamic"}, {"alpha", 10.0}, {"factor", 1.0}}},
        {"moe_topk", {2, 2}},
        {"moe_intermediate_size", {48, 48}},
        {"num_shared_expert", {1, 1}}}},
      {"deepseek_v2",
       {"rope_parameters", "head_dim", "qk_head_dim", "tie_word_embeddings"},
       {{"rope_theta", 10000.0},
        {"rope_scaling", ScaledYarn()},
        {"scoring_func", "softmax"},
        {"moe_layer_freq", 1}}},
      {"deepseek_v3",
       {"rope_parameters", "rope_interleave", "head_dim", "qk_head_dim"},
       {{"rope_theta", 10000.0},
        {"rope_scaling", ScaledYarn()},
        {"scoring_func", "sigmoid"},
        {"topk_method", "noaux_tc"},
        {"moe_layer_freq", 1},
        {"num_nextn_predict_layers", 1}}},
      {"glm4_moe_lite",
       {"rope_parameters", "mlp_layer_types", "rope_interleave"},
       {{"rope_theta", 10000.0},
        {"partial_rotary_factor", 1.0},
        {"first_k_dense_replace", 1},
        {"topk_method", "noaux_tc"},
        {"num_nextn_predict_layers", 1}}},
      {"minicpm3",
       {"rope_parameters", "head_dim", "qk_head_dim", "v_head_dim", "tie_word_embeddings"},
       {{"rope_theta", 10000.0}, {"rope_scaling", ScaledYarn()}}},
      {"glm4_moe",
       {"rope_parameters"},
       {{"rope_theta", 10000.0}, {"partial_rotary_factor", 0.5}, {"num_nextn_predict_layers", 1}}},
      {"dots1",
       {"rope_parameters", "layer_types"},
       {{"rope_theta", 10000.0}, {"scoring_func", "sigmoid"}, {"topk_method", "noaux_tc"}}},
      {"exaone_moe",
       {"rope_parameters", "layer_types", "mlp_layer_types"},
       {{"rope_theta", 10000.0}}},
      {"minimax_m2",
       {"rope_parameters"},
       {{"rope_theta", 10000.0},
        {"rotary_dim", 4},
        {"use_qk_norm", true},
        {"qk_norm_type", "per_layer"},
        {"scoring_func", "sigmoid"}}},
      {"qwen3_next",
       {"rope_parameters", "layer_types"},
       {{"rope_theta", 10000.0}, {"full_attention_interval", 4}, {"partial_rotary_factor", 0.25}}},
      {"qwen3_5", {"layer_types", "linear_conv_kernel_dim"}, {{"full_attention_interval", 4}}},
      {"qwen3_5_moe", {"rope_parameters", "layer_types"}, {{"rope_theta", 10000.0}}},
  };
  return *forms;
}

TEST(Families, ReadTheFormOfTheHub) {
  const json cases = FamilyConfigs();
  for (const HubForm& form : HubForms()) {
    SCOPED_TRACE(form.name);
    ASSERT_OK_AND_ASSIGN(const ModelSpec newer, ParseFamily(cases[form.name]["config"]));
    ASSERT_OK_AND_ASSIGN(const ModelSpec hub, ParseFamily(InHubForm(form)));
    EXPECT_EQ(Describe(hub), Describe(newer));
    EXPECT_EQ(hub.layers, newer.layers);
    EXPECT_EQ(hub.ropes, newer.ropes);
    EXPECT_EQ(hub.stored_rules, newer.stored_rules);
    EXPECT_EQ(hub.max_position_embeddings, newer.max_position_embeddings);
  }
}

}  // namespace
}  // namespace tandem::model
