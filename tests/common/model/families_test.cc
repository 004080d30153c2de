// Every family's row reads both forms of config.json: that of transformers 5
// (family_configs.json), and the older one of the Hub.
#include <gmock/gmock.h>

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/families/family_table.h"
#include "common/model/families/row_config.h"
#include "tests/common/model/family_configs.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

using nlohmann::json;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<ModelSpec> ParseFamily(const json& config) {
  const std::string architecture = config["architectures"][0].get<std::string>();
  const v1::FamilyRow* const row = Families().FindArchitecture(architecture);
  if (row == nullptr) return absl::NotFoundError(architecture);
  return ParseRow(*row, ConfigReader(config, "m/config.json"));
}

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

std::string DescribeRope(const RopeSpec& rope) {
  std::string text = absl::StrCat("theta=", rope.theta);
  Say<int64_t>(text, "dim", rope.rotary_dim, 0);
  Say(text, "pairs", rope.interleaved);
  Say(text, "linear", rope.linear_factor, 1.0);
  if (rope.llama3) Say(text, "llama3", rope.llama3->factor, 0.0);
  if (rope.yarn) Say(text, "yarn", rope.yarn->factor, 0.0);
  if (rope.longrope) Say(text, "longrope", rope.longrope->long_factor.back(), 0.0);
  return text;
}

// "4x16 top2 softmax normalized": 4 experts of 16 units, of which a token reaches 2.
std::string DescribeExperts(const ExpertSpec& experts) {
  const RoutingSpec& routing = experts.routing;
  constexpr const char* kScores[] = {"softmax", "sigmoid", "sparsemixer"};
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
  Say(text, "jitter", routing.jitter, 0.0);
  Say(text, "clamped", experts.activation == Activation::kClampedSwiglu);
  Say(text, "bias", experts.bias);
  Say<int64_t>(text, "shared", experts.shared_intermediate_size, 0);
  Say(text, "gate", experts.shared_intermediate_size > 0 && experts.shared_gate);
  Say(text, "shared_bias", experts.shared_bias);
  return text;
}

// What sets the model apart from a plain Llama.
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
    EXPECT_FALSE(attention.qk_norm->norm.bias);
  }
  Say(text, "clip", attention.clip_qkv, 0.0);
  Say(text, "scale", attention.scale, 0.0);
  Say(text, "last_scale", spec.layers.back().attention.scale, attention.scale);
  Say(text, "cap", attention.softcap, 0.0);
  Say(text, "alibi", attention.alibi_scale, 0.0);
  Say(text, "sinks", attention.sinks);
  if (attention.query_position_scale) {
    Say(text, "beta", attention.query_position_scale->beta, 0.0);
  }
  text += ";";
  constexpr const char* kActivations[] = {"silu",  "gelu",  "gelu_tanh",     "relu",
                                          "relu2", "xielu", "clamped_swiglu"};
  const int activation = static_cast<int>(feed_forward.activation);
  Say(text, kActivations[activation], activation != 0);
  Say(text, "ungated", !feed_forward.gated);
  Say(text, "mlp_bias", feed_forward.bias);
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
  Say(text, "tied", spec.tie_word_embeddings);
  Say(text, "head_bias", spec.head_bias);
  Say(text, "logits", spec.logit_scale, 1.0);
  Say(text, "logit_cap", spec.logit_softcap, 0.0);
  std::vector<int64_t> windows;
  std::vector<int> ropes;
  for (const LayerSpec& of_spec : spec.layers) {
    windows.push_back(of_spec.attention.window);
    ropes.push_back(of_spec.attention.rope);
  }
  absl::StrAppend(&text, "; windows ", absl::StrJoin(windows, " "), "; ropes ",
                  absl::StrJoin(ropes, " "));
  for (const RopeSpec& rope : spec.ropes) absl::StrAppend(&text, "; ", DescribeRope(rope));
  return text;
}

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
    EXPECT_EQ(tested.count(row.architecture()), 1) << row.architecture();
  }
}

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

TEST(Families, RefuseWhatNoSwitchHas) {
  const auto error = [](const char* name, const char* key, const json& value) {
    json config = FamilyConfigs()[name]["config"];
    config[key] = value;
    const absl::Status status = ParseFamily(config).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnimplemented,
                                 AllOf(HasSubstr("m/config.json"), HasSubstr(key))))
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
  error("mpt", "no_bias", false);
  error("mixtral", "router_jitter_noise", 0.1);
  error("olmoe", "clip_qkv", 8.0);
  error("gpt_oss", "swiglu_limit", 5.0);
  error("glm4_moe", "scoring_func", "softmax");
  error("deepseek_v2", "norm_topk_prob", true);
  error("deepseek_v3", "topk_method", "greedy");
  error("minimax_m2", "use_qk_norm", false);
  error("qwen3_moe", "use_sliding_window", true);
  error("llama", "hidden_act", "quick_gelu");
  error("llama", "hidden_act", "xielu");
  json mpt = FamilyConfigs()["mpt"]["config"];
  mpt["attn_config"]["qk_ln"] = true;
  EXPECT_THAT(ParseFamily(mpt), StatusIs(absl::StatusCode::kUnimplemented,
                                         AllOf(HasSubstr("attn_config"), HasSubstr("qk_ln"))));
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
