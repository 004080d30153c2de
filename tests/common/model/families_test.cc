// Every family's row reads config.json as transformers 5 writes it (family_configs.json).
#include <gmock/gmock.h>

#include <set>
#include <string>

#include "common/model/families/family_table.h"
#include "tests/common/model/family_configs.h"
#include "tests/common/model/family_description.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

using nlohmann::json;

struct Expected {
  const char* name;
  const char* description;
};

constexpr Expected kExpected[] = {
    {"deepseek_v2",
     "4/4x12 48; rms; values=6 latent 10 12+4 scale=0.321578; experts 4x16 top2 softmax groups=1/2 "
     "times=2 shared=32 first_dense;; windows 0 0; ropes 0 0; theta=10000 dim=4 pairs yarn=2"},
    {"deepseek_v2-lite",
     "4/4x12 48; rms; values=6 latent 0 12+4; experts 4x16 top2 softmax shared=32 first_dense;; "
     "windows 0 0; ropes 0 0; theta=10000 dim=4 pairs"},
    {"deepseek_v3",
     "4/4x12 48; rms; values=6 latent 10 12+4 scale=0.321578; experts 8x16 top2 sigmoid normalized "
     "corrected groups=1/2 by_two times=2.5 shared=32 first_dense;; windows 0 0; ropes 0 0; "
     "theta=10000 dim=4 pairs yarn=2"},
    {"glm4_moe_lite",
     "4/4x12 48; rms eps=1e-05; values=6 latent 10 12+4; experts 4x16 top2 sigmoid normalized "
     "corrected times=1.8 shared=16 first_dense;; windows 0 0; ropes 0 0; theta=10000 dim=4 pairs"},
    {"minicpm3",
     "4/4x12 48; rms eps=1e-05 residual=0.989949; values=8 latent 10 12+4 scale=0.321578;; "
     "embedding=2 tied logits=0.5; windows 0 0; ropes 0 0; theta=10000 dim=4 yarn=2"},
    {"minicpm3-direct",
     "4/4x12 48; rms eps=1e-05 residual=0.989949; values=6 latent 0 12+4 down_bias output_bias;; "
     "embedding=12 tied logits=8; windows 0 0; ropes 0 0; theta=10000 dim=4"},
    {"dots1",
     "4/2x8 48; rms; qk_norm=head; experts 4x16 top2 sigmoid normalized corrected shared=32 "
     "first_dense;; windows 0 0; ropes 0 0; theta=10000"},
    {"ernie4_5_moe",
     "4/2x8 48; rms eps=1e-05;; experts 4x16 top2 softmax normalized corrected shared=32 "
     "first_dense; tied; windows 0 0; ropes 0 0; theta=500000 pairs"},
    {"exaone_moe",
     "4/2x8 48; rms eps=1e-05; qk_norm=head; experts 4x16 top2 sigmoid normalized corrected "
     "times=2.5 shared=16 first_dense;; windows 8 8 8 0; ropes 0 0 0 -1; theta=10000"},
    {"glm4_moe",
     "4/2x8 48; rms eps=1e-05; qk_norm=head; experts 4x16 top2 sigmoid normalized corrected "
     "groups=1/2 by_two shared=32 first_dense;; windows 0 0; ropes 0 0; theta=10000 dim=4"},
    {"gpt_oss",
     "4/2x8 48; rms eps=1e-05; qkv_bias output_bias sinks; experts 4x48 top2 softmax normalized "
     "router_bias clamped bias;; windows 8 0; ropes 0 0; theta=150000 yarn=32"},
    {"granitemoe",
     "4/2x8 48; rms residual=0.7; scale=0.3; experts 4x48 top2 softmax normalized; embedding=2 "
     "logits=2; windows 0 0; ropes 0 0; theta=10000"},
    {"granitemoeshared",
     "4/2x8 48; rms residual=0.7; scale=0.3; experts 4x48 top2 softmax normalized shared=24; "
     "embedding=2 logits=2; windows 0 0; ropes 0 0; theta=10000"},
    {"hunyuan_moe",
     "4/2x8 48; rms eps=1e-05; qk_norm=head after_rotation; experts 4x48 top2 softmax normalized "
     "shared=48;; windows 0 0; ropes 0 0; theta=215443"},
    {"minimax_m2",
     "4/2x8 48; rms; qk_norm=all_heads; experts 4x48 top2 sigmoid normalized corrected;; windows 0 "
     "0; ropes 0 0; theta=10000 dim=4"},
    {"olmoe",
     "4/2x8 48; rms eps=1e-05; qk_norm=all_heads; experts 4x48 top2 softmax;; windows 0 0; ropes 0 "
     "0; theta=10000"},
    {"phimoe",
     "4/2x8 48; layer eps=1e-05 bias; qkv_bias output_bias; experts 4x48 top2 sparsemixer "
     "jitter=0.01; head_bias; windows 0 0; ropes 0 0; theta=1e+06"},
    {"llama4",
     "4/2x8 64; rms eps=1e-05; qk_norm=head after_rotation no_weight beta=0.1 last_beta; experts "
     "4x48 top1 sigmoid_of_chosen weigh_inputs shared=48 first_dense;; windows 16c 16c 16c 0; "
     "ropes "
     "0 0 0 -1; theta=500000 pairs"},
    {"apertus",
     "4/2x8 48; rms eps=1e-05; qk_norm=head; xielu ungated;; windows 0 0; ropes 0 0; theta=1.2e+07 "
     "llama3=8"},
    {"arcee", "4/2x8 48; rms eps=1e-05;; relu2 ungated;; windows 0 0; ropes 0 0; theta=10000"},
    {"bloom",
     "4/4x8 128; layer eps=1e-05 bias; qkv_bias output_bias alibi=1; gelu_tanh ungated mlp_bias; "
     "embedding_norm tied; windows 0 0; ropes -1 -1"},
    {"cohere",
     "4/2x8 48; layer eps=1e-05 parallel shared; qk_norm=each_head;; tied logits=1.2; windows 0 0; "
     "ropes 0 0; theta=500000 pairs"},
    {"cohere2",
     "4/2x8 48; layer eps=1e-05 parallel shared;;; tied logits=0.0625; windows 8 8 8 0; ropes 0 0 "
     "0 -1; theta=10000 pairs"},
    {"cwm", "4/2x8 48; rms eps=1e-05;;;; windows 0 8 8 8; ropes 0 0 0 0; theta=1e+06 llama3=16"},
    {"ernie4_5",
     "4/2x8 48; rms eps=1e-05; qkv_bias output_bias; mlp_bias; tied; windows 0 0; ropes 0 0; "
     "theta=500000 pairs"},
    {"exaone4",
     "4/2x8 48; rms eps=1e-05 after; qk_norm=head;;; windows 8 8 8 0; ropes 0 0 0 -1; theta=10000"},
    {"exaone4-full",
     "4/2x8 48; rms eps=1e-05 after; qk_norm=head;;; windows 0 0; ropes 0 0; theta=10000"},
    {"falcon",
     "4/1x8 128; layer eps=1e-05 bias parallel shared;; gelu ungated; tied; windows 0 0; ropes 0 "
     "0; theta=10000"},
    {"falcon-11b",
     "4/2x8 64; layer eps=1e-05 bias parallel shared;; gelu ungated; tied; windows 0 0; ropes 0 0; "
     "theta=10000"},
    {"falcon-40b",
     "4/2x8 128; layer eps=1e-05 bias parallel;; gelu ungated; tied; windows 0 0; ropes 0 0; "
     "theta=10000"},
    {"falcon-rw",
     "4/4x8 128; layer eps=1e-05 bias; qkv_bias output_bias alibi=0.353553; gelu ungated mlp_bias; "
     "tied; windows 0 0; ropes -1 -1"},
    {"gemma",
     "4/2x16 48; rms 1+w;; gelu_tanh; embedding=5.65685 tied; windows 0 0; ropes 0 0; theta=10000"},
    {"gemma2",
     "4/2x16 48; rms 1+w sandwich; scale=0.204124 cap=3; gelu_tanh; embedding=5.65685 tied "
     "logit_cap=5; windows 8 0; ropes 0 0; theta=10000"},
    {"gemma3",
     "4/2x16 48; rms 1+w sandwich; qk_norm=head scale=0.204124; gelu_tanh; embedding=5.65685 tied; "
     "windows 8 8 8 8 8 0; ropes 0 0 0 0 0 1; theta=10000; theta=1e+06"},
    {"gemma4",
     "4/2x16 48; rms sandwich scalar; qk_norm=head scale=1 last 4/2x32 value_norm last_kv=3; "
     "gelu_tanh last=96; embedding=5.65685 layer_inputs=96x6 tied; windows 8 0 8 0 8 0; ropes 0 1 "
     "0 1 0 1; theta=10000; theta=1e+06 dim=32 turning=4"},
    {"gemma4-keys",
     "4/2x16 48; rms sandwich scalar; qk_norm=head scale=1 last 4/1x32 value_norm "
     "last_values_are_keys; gelu_tanh; embedding=5.65685 tied logit_cap=30; windows 8 8 8 0; ropes "
     "0 0 0 1; theta=10000; theta=1e+06 dim=32 turning=4"},
    {"gemma4-experts",
     "4/2x16 48; rms sandwich scalar; qk_norm=head scale=1 last 4/2x32 value_norm; gelu_tanh "
     "experts 4x16 top2 softmax normalized beside_dense router_norm logits=0.176777 expert_scales; "
     "embedding=5.65685 tied; windows 8 0; ropes 0 1; theta=10000; theta=1e+06 dim=32 turning=4"},
    {"glm",
     "4/2x8 48; rms eps=1.5625e-07; qkv_bias;;; windows 0 0; ropes 0 0; theta=10000 dim=4 pairs"},
    {"glm4",
     "4/2x8 48; rms eps=1.5625e-07 sandwich; qkv_bias;;; windows 0 0; ropes 0 0; theta=10000 dim=4 "
     "pairs"},
    {"gpt2",
     "4/4x8 128; layer eps=1e-05 bias; qkv_bias output_bias scale=0.353553 last_scale=0.176777; "
     "gelu_tanh ungated mlp_bias; positions_from=0 tied; windows 0 0; ropes -1 -1"},
    {"gpt_bigcode",
     "4/1x8 128; layer eps=1e-05 bias; qkv_bias output_bias; gelu_tanh ungated mlp_bias; "
     "positions_from=0 tied; windows 0 0; ropes -1 -1"},
    {"gpt_bigcode-heads",
     "4/4x8 128; layer eps=1e-05 bias; qkv_bias output_bias; gelu_tanh ungated mlp_bias; "
     "positions_from=0 tied; windows 0 0; ropes -1 -1"},
    {"gpt_neox",
     "4/4x8 48; layer eps=1e-05 bias parallel; qkv_bias output_bias; gelu ungated mlp_bias;; "
     "windows 0 0; ropes 0 0; theta=10000 dim=2"},
    {"gpt_neox-serial",
     "4/4x8 48; layer eps=1e-05 bias; qkv_bias output_bias; gelu ungated mlp_bias;; windows 0 0; "
     "ropes 0 0; theta=10000 dim=2"},
    {"gptj",
     "4/4x8 128; layer eps=1e-05 bias parallel shared;; gelu_tanh ungated mlp_bias; head_bias; "
     "windows 0 0; ropes 0 0; theta=10000 dim=4 pairs"},
    {"granite",
     "4/2x8 48; rms residual=0.7; scale=0.3;; embedding=2 logits=2; windows 0 0; ropes 0 0; "
     "theta=10000"},
    {"helium", "4/2x8 48; rms eps=1e-08;;;; windows 0 0; ropes 0 0; theta=100000 pairs"},
    {"hunyuan_dense",
     "4/2x8 48; rms eps=1e-05; qk_norm=head after_rotation;;; windows 0 0; ropes 0 0; "
     "theta=215443"},
    {"hyperclovax",
     "4/2x8 48; rms sandwich residual=0.7; scale=0.3;; embedding=2 logits=0.5; windows 0 0; ropes "
     "0 "
     "0; theta=10000"},
    {"hyperclovax-pre", "4/2x8 48; rms; scale=0.353553;;; windows 0 0; ropes 0 0; theta=10000"},
    {"llama",
     "4/2x8 48; rms; qkv_bias output_bias; mlp_bias;; windows 0 0; ropes 0 0; theta=10000"},
    {"ministral", "4/2x8 48; rms;;;; windows 8 0; ropes 0 0; theta=10000"},
    {"ministral3",
     "4/2x8 48; rms eps=1e-05; beta=0.1;;; windows 0 0; ropes 0 0; theta=10000 yarn=2"},
    {"mimo_v2_flash",
     "4/1x24 48; rms eps=1e-05; values=8 times=0.707 windowed 4/2x24+8 sinks; experts 4x16 top2 "
     "sigmoid normalized corrected first_dense;; windows 0 8 8 8 8 0; ropes 0 1 1 1 1 0; "
     "theta=5e+06 dim=8; theta=10000 dim=8"},
    {"mistral", "4/2x8 48; rms;;;; windows 8 8; ropes 0 0; theta=10000"},
    {"mixtral",
     "4/2x8 48; rms eps=1e-05;; experts 4x48 top2 softmax normalized;; windows 0 0; ropes 0 0; "
     "theta=1e+06"},
    {"mpt",
     "4/4x8 128; layer eps=1e-05; clip=2 scale=0.3 alibi=1; gelu ungated; tied; windows 0 0; ropes "
     "-1 -1"},
    {"nemotron",
     "4/2x8 48; layer eps=1e-05 bias 1+w;; relu2 ungated;; windows 0 0; ropes 0 0; theta=10000 "
     "dim=4"},
    {"olmo", "4/2x8 48; layer eps=1e-05 no_weight; clip=2;;; windows 0 0; ropes 0 0; theta=10000"},
    {"olmo2",
     "4/2x8 48; rms eps=1e-05 after; qk_norm=all_heads;;; windows 0 0; ropes 0 0; theta=10000"},
    {"olmo3",
     "4/2x8 48; rms eps=1e-05 after; qk_norm=all_heads;;; windows 8 8 8 0; ropes 0 0 0 1; "
     "theta=500000; theta=500000 yarn=2"},
    {"opt",
     "4/4x8 48; layer eps=1e-05 bias; qkv_bias output_bias; relu ungated mlp_bias; "
     "positions_from=2 tied; windows 0 0; ropes -1 -1"},
    {"phi",
     "4/4x8 48; layer eps=1e-05 bias parallel shared; qkv_bias output_bias; gelu_tanh ungated "
     "mlp_bias; head_bias; windows 0 0; ropes 0 0; theta=10000 dim=4"},
    {"phi3", "4/2x16 48; rms eps=1e-05;;;; windows 0 0; ropes 0 0; theta=10000 dim=8 longrope=9"},
    {"qwen2", "4/2x8 48; rms; qkv_bias;;; windows 0 0 8 8; ropes 0 0 0 0; theta=10000"},
    {"qwen2_moe",
     "4/2x8 48; rms; qkv_bias; experts 4x16 top2 softmax shared=24 gate;; windows 0 0; ropes 0 0; "
     "theta=10000"},
    {"qwen3", "4/2x16 48; rms; qk_norm=head;;; windows 0 0; ropes 0 0; theta=10000"},
    {"qwen3_moe",
     "4/2x16 48; rms; qk_norm=head; experts 4x16 top2 softmax;; windows 0 0; ropes 0 0; "
     "theta=10000"},
    {"qwen3_5",
     "4/2x16 48; rms 1+w; qk_norm=head output_gate linear 2x8 4x12 kernel=4 in 0 1 2;;; windows 0 "
     "0 "
     "0 0; ropes 0 0 0 0; theta=10000 dim=8"},
    {"qwen3_5_moe",
     "4/2x16 16; rms 1+w; qk_norm=head output_gate linear 2x8 4x12 kernel=4 in 0 1 2; experts 4x16 "
     "top2 softmax normalized shared=24 gate;; windows 0 0 0 0; ropes 0 0 0 0; theta=10000 dim=4"},
    {"qwen3_next",
     "4/2x16 48; rms 1+w; qk_norm=head output_gate linear 2x8 4x12 kernel=4 in 0 1 2; experts 4x16 "
     "top2 softmax normalized shared=24 gate;; windows 0 0 0 0; ropes 0 0 0 0; theta=10000 dim=4"},
    {"seed_oss", "4/2x8 48; rms; qkv_bias;;; windows 0 0; ropes 0 0; theta=10000"},
    {"smollm3", "4/2x8 48; rms;;; tied; windows 0 0 0 0; ropes 0 0 0 -1; theta=2e+06"},
    {"stablelm",
     "4/2x8 48; layer eps=1e-05 bias; qkv_bias qk_norm=each_head;;; windows 0 0; ropes 0 0; "
     "theta=10000 dim=2"},
    {"stablelm-parallel",
     "4/2x8 48; layer eps=1e-05 bias parallel shared;;;; windows 0 0; ropes 0 0; theta=10000 "
     "dim=2"},
    {"starcoder2",
     "4/2x8 48; layer eps=1e-05 bias; qkv_bias output_bias; gelu_tanh ungated mlp_bias; tied; "
     "windows 8 8; ropes 0 0; theta=10000"},
};

TEST(Families, ReadWhatTransformersWrites) {
  const json cases = FamilyConfigs();
  for (const auto& [name, description] : kExpected) {
    SCOPED_TRACE(name);
    ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseFamily(cases[name]["config"]));
    EXPECT_EQ(Describe(spec), description);
    EXPECT_EQ(spec.vocab_size, 96);
    EXPECT_EQ(spec.hidden_size, std::string(name) == "phi3" ? 64 : 32);
  }
  EXPECT_EQ(std::size(kExpected), cases.size());
}

TEST(Families, EachHasACase) {
  std::set<std::string> tested;
  const json cases = FamilyConfigs();
  for (const auto& [name, made] : cases.items()) {
    tested.insert(made["config"]["architectures"][0].get<std::string>());
  }
  for (const v1::FamilyRow& row : Families().rows()) {
    if (row.vision_tower() != v1::VISION_TOWER_UNSPECIFIED) continue;  // vision_spec_test.cc
    EXPECT_EQ(tested.count(row.architecture()), 1) << row.architecture();
  }
}

}  // namespace
}  // namespace tandem::model
