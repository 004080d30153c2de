#include "common/model/model_spec.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/parameter_table.h"
#include "common/model/stored_layout.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

using nlohmann::json;
using ::tandem::testing::IsOk;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

json LlamaConfig() {
  return json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "vocab_size": 131, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": [2, 3]})");
}

json Changed(json config, const json& changes) {
  config.merge_patch(changes);  // null removes
  return config;
}

ModelSpec Parse(const json& config) {
  absl::StatusOr<ModelSpec> spec = ParseModelSpec(config, "config.json");
  EXPECT_OK(spec);
  return spec.value_or(ModelSpec());
}

absl::Status ErrorOf(const json& changes) {
  return ParseModelSpec(Changed(LlamaConfig(), changes), "m/config.json").status();
}

TEST(ModelSpec, ReadsLlama) {
  const ModelSpec spec = Parse(LlamaConfig());
  EXPECT_EQ(spec.architecture, "LlamaForCausalLM");
  EXPECT_EQ(spec.layers.front().attention.head_dim, 6);
  EXPECT_EQ(spec.layers.front().attention.q_size(), 24);
  EXPECT_EQ(spec.layers.front().attention.kv_size(), 12);
  ASSERT_EQ(spec.ropes.size(), 1);
  EXPECT_EQ(spec.ropes[0].theta, 10000.0);
  EXPECT_FALSE(spec.layers.front().attention.qkv_bias || spec.layers.front().feed_forward.bias ||
               spec.layers.front().attention.qk_norm.has_value() || spec.tie_word_embeddings);
  EXPECT_THAT(spec.eos_token_ids, ElementsAre(2, 3));
  EXPECT_EQ(spec.bos_token_id, 1);
  EXPECT_EQ(spec.pad_token_id, std::nullopt);
}

TEST(ModelSpec, Qwen2HasBiasesOnQkvAlone) {
  const ModelSpec spec = Parse(Changed(LlamaConfig(), {{"architectures", {"Qwen2ForCausalLM"}}}));
  EXPECT_TRUE(spec.layers.front().attention.qkv_bias);
  EXPECT_FALSE(spec.layers.front().attention.output_bias);
}

TEST(ModelSpec, Qwen3NormalisesHeadsOf128UnlessToldOtherwise) {
  const json config = Changed(LlamaConfig(), {{"architectures", {"Qwen3ForCausalLM"}}});
  EXPECT_TRUE(Parse(config).layers.front().attention.qk_norm.has_value());
  EXPECT_EQ(Parse(config).layers.front().attention.head_dim, 128);
  EXPECT_EQ(Parse(Changed(config, {{"head_dim", 10}})).layers.front().attention.head_dim, 10);
}

TEST(ModelSpec, AValueModelMayBeATokenClassifier) {
  const json config = Changed(LlamaConfig(), {{"architectures", {"LlamaForTokenClassification"}}});

  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseValueModelSpec(config, "m/config.json"));

  EXPECT_TRUE(spec.value_head);
  EXPECT_EQ(spec.hidden_size, Parse(LlamaConfig()).hidden_size);
  EXPECT_EQ(spec.layers.size(), 3);
  EXPECT_THAT(ParseModelSpec(config, "m/config.json"),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("architectures")));
  EXPECT_THAT(ParseValueModelSpec(
                  Changed(config, {{"architectures", {"BertForTokenClassification"}}}), "m"),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("architectures")));
  EXPECT_OK(ParseValueModelSpec(LlamaConfig(), "m/config.json"));
  const json gpt2 = {{"architectures", {"GPT2ForTokenClassification"}},
                     {"vocab_size", 96},
                     {"n_embd", 32},
                     {"n_layer", 2},
                     {"n_head", 4}};
  ASSERT_OK_AND_ASSIGN(const ModelSpec older, ParseValueModelSpec(gpt2, "m/config.json"));
  EXPECT_TRUE(older.value_head);
}

json Qwen3MoeConfig() {
  return Changed(LlamaConfig(), {{"architectures", {"Qwen3MoeForCausalLM"}},
                                 {"num_experts", 6},
                                 {"num_experts_per_tok", 2},
                                 {"moe_intermediate_size", 10},
                                 {"norm_topk_prob", true}});
}

std::vector<bool> HasExperts(const ModelSpec& spec) {
  std::vector<bool> has;
  for (const LayerSpec& layer : spec.layers) has.push_back(layer.experts.has_value());
  return has;
}

TEST(ModelSpec, Qwen3MoeHasExpertsInTheLayersThatAreNotLeftDense) {
  const ModelSpec spec = Parse(Qwen3MoeConfig());
  EXPECT_THAT(HasExperts(spec), ElementsAre(true, true, true));
  EXPECT_EQ(*spec.layers.front().experts, (ExpertSpec{.num_experts = 6,
                                                      .intermediate_size = 10,
                                                      .routing = {.top_k = 2, .normalize = true}}));
  EXPECT_TRUE(spec.layers.front().attention.qk_norm.has_value());
  EXPECT_EQ(spec.layers.front().attention.head_dim, 6);
  EXPECT_THAT(HasExperts(Parse(Changed(Qwen3MoeConfig(), {{"decoder_sparse_step", 2}}))),
              ElementsAre(false, true, false));
  EXPECT_THAT(HasExperts(Parse(Changed(Qwen3MoeConfig(), {{"mlp_only_layers", {0, 2}}}))),
              ElementsAre(false, true, false));
  EXPECT_THAT(HasExperts(Parse(Changed(Qwen3MoeConfig(), {{"num_experts", 0}}))),
              ElementsAre(false, false, false));
  // What transformers 5 writes.
  const json renamed =
      Changed(Qwen3MoeConfig(), {{"num_experts", nullptr}, {"num_local_experts", 6}});
  EXPECT_EQ(Parse(renamed).layers, spec.layers);
}

TEST(ModelSpec, OfExpertsATokenReachesOnlySome) {
  const ModelSpec spec = Parse(Qwen3MoeConfig());
  EXPECT_EQ(spec.num_parameters() - spec.num_active_parameters(), 3 * (6 - 2) * 3 * 24 * 10);
  EXPECT_EQ(Parse(LlamaConfig()).num_active_parameters(), Parse(LlamaConfig()).num_parameters());
}

TEST(ModelSpec, Qwen2MoeHasASharedExpert) {
  const ModelSpec spec =
      Parse(Changed(Qwen3MoeConfig(), {{"architectures", {"Qwen2MoeForCausalLM"}},
                                       {"norm_topk_prob", nullptr},
                                       {"shared_expert_intermediate_size", 7}}));
  EXPECT_FALSE(spec.layers.front().experts->routing.normalize);
  EXPECT_EQ(spec.layers.front().experts->shared_intermediate_size, 7);
  EXPECT_TRUE(spec.layers.front().attention.qkv_bias);
}

TEST(ModelSpec, ExpertsOfAnActivationWithoutAGateAreRefused) {
  const json config = Changed(LlamaConfig(), {{"architectures", {"MixtralForCausalLM"}},
                                              {"num_local_experts", 4},
                                              {"hidden_act", "xielu"}});
  EXPECT_THAT(ParseModelSpec(config, "config.json"),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("hidden_act")));
}

TEST(ModelSpec, MixtralNamesItsTensorsAndDefaultsOtherwise) {
  const ModelSpec spec = Parse(Changed(LlamaConfig(), {{"architectures", {"MixtralForCausalLM"}},
                                                       {"num_local_experts", 4},
                                                       {"rms_norm_eps", nullptr},
                                                       {"sliding_window", 8}}));
  const ExpertSpec& experts = *spec.layers.back().experts;
  EXPECT_EQ(experts.intermediate_size, 40);
  EXPECT_EQ(experts.routing, (RoutingSpec{.top_k = 2, .normalize = true}));
  EXPECT_EQ(spec.layers.back().attention.window, 8);
  EXPECT_EQ(spec.ropes.at(0).theta, 1e6);
  EXPECT_EQ(spec.layers.back().norm.eps, 1e-5);
  const ParameterTable table(spec);
  const ExpertParameters& at = *table.layer(1).experts;
  EXPECT_EQ(table.parameter(at.router.weight).name, "model.layers.1.mlp.gate.weight");
  const std::string expert = "model.layers.1.mlp.experts.3.";
  const Parameter& gate_up = table.parameter(at.gate_up.weights[3]);
  EXPECT_EQ(gate_up.segments[0].name, expert + "gate_proj.weight");
  EXPECT_EQ(gate_up.segments[1].name, expert + "up_proj.weight");
  EXPECT_EQ(table.parameter(at.down.weights[3]).name, expert + "down_proj.weight");
  ASSERT_OK_AND_ASSIGN(const StoredLayout layout, StoredLayout::Create(table, nullptr));
  std::vector<std::string> stored;
  for (const StoredTensor& tensor : layout.tensors()) stored.push_back(tensor.name);
  const std::string block = "model.layers.1.block_sparse_moe.";
  EXPECT_THAT(stored, IsSupersetOf({block + "gate.weight", block + "experts.3.w1.weight",
                                    block + "experts.3.w3.weight", block + "experts.3.w2.weight"}));
}

TEST(ModelSpec, ExpertsThatNoModelHasAreNamed) {
  const auto error = [](const json& changes) {
    return ParseModelSpec(Changed(Qwen3MoeConfig(), changes), "config.json").status();
  };
  EXPECT_THAT(error({{"num_experts_per_tok", 7}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("num_experts_per_tok"), HasSubstr("at most"))));
  EXPECT_THAT(error({{"num_experts", 1 << 16}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"num_experts\"")));
  EXPECT_THAT(error({{"mlp_only_layers", "all"}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("mlp_only_layers")));
  EXPECT_THAT(error({{"decoder_sparse_step", 0}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("decoder_sparse_step")));
  EXPECT_THAT(error({{"use_sliding_window", true}}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("use_sliding_window")));
  EXPECT_THAT(error({{"architectures", {"MixtralForCausalLM"}}, {"router_jitter_noise", 0.1}}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("router_jitter_noise")));
}

TEST(ModelSpec, ModelTypeStandsInForAbsentArchitectures) {
  const json config = Changed(LlamaConfig(), {{"architectures", nullptr}, {"model_type", "qwen3"}});
  EXPECT_EQ(Parse(config).architecture, "Qwen3ForCausalLM");
}

TEST(ModelSpec, RopeIsReadFromOldAndNewKeys) {
  const json scaling = {{"rope_type", "llama3"},
                        {"factor", 4.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 2.0},
                        {"original_max_position_embeddings", 32}};
  const ModelSpec old_keys =
      Parse(Changed(LlamaConfig(), {{"rope_theta", 500000.0}, {"rope_scaling", scaling}}));
  json parameters = scaling;
  parameters["rope_theta"] = 500000.0;
  const ModelSpec new_keys = Parse(Changed(LlamaConfig(), {{"rope_parameters", parameters}}));
  for (const ModelSpec& spec : {old_keys, new_keys}) {
    ASSERT_EQ(spec.ropes.size(), 1);
    const RopeSpec& rope = spec.ropes[0];
    EXPECT_EQ(rope.theta, 500000.0);
    ASSERT_TRUE(rope.llama3.has_value());
    EXPECT_EQ(rope.llama3->factor, 4.0);
    EXPECT_EQ(rope.llama3->original_max_position_embeddings, 32);
  }
  EXPECT_EQ(Parse(Changed(LlamaConfig(), {{"rope_scaling", {{"type", "linear"}, {"factor", 3.0}}}}))
                .ropes.at(0)
                .linear_factor,
            3.0);
}

TEST(ModelSpec, WhatIsNotSupportedIsNamed) {
  EXPECT_THAT(ErrorOf({{"architectures", {"Gemma9ForCausalLM"}}}),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("m/config.json"), HasSubstr("Gemma9ForCausalLM"),
                             HasSubstr("nearest is Gemma"),
                             HasSubstr("common/model/README.md#add-a-model-family"))));
  EXPECT_THAT(ErrorOf({{"architectures", {"Qwen9ForCausalLM"}}}),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("\"architectures\" is [\"Qwen9ForCausalLM\"]"),
                             HasSubstr("nearest is Qwen"), HasSubstr("model.family_file"))));
  EXPECT_THAT(ErrorOf({{"architectures", nullptr}, {"model_type", "wholly-other"}}),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("model_type"), HasSubstr("families.yaml"))));
  EXPECT_THAT(ErrorOf({{"hidden_act", "mish"}}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("mish")));
  EXPECT_THAT(ErrorOf({{"rope_scaling", {{"rope_type", "mrope"}, {"factor", 2}}}}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("mrope")));
  EXPECT_THAT(ErrorOf({{"quantization_config", {{"quant_method", "awq"}, {"bits", 4}}}}),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("quantization_config"), HasSubstr("awq"))));
  EXPECT_THAT(
      ErrorOf({{"use_sliding_window", true}, {"sliding_window", 16}, {"max_window_layers", 1}}),
      StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("use_sliding_window")));
  EXPECT_THAT(ErrorOf({{"use_sliding_window", true}, {"sliding_window", 16}}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("use_sliding_window")));
  EXPECT_THAT(ErrorOf({{"layer_types", {"full_attention", "sliding_attention", "full_attention"}}}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("layer_types")));
}

TEST(ModelSpec, KeysOfRotationsThatTheFamilyDoesNotHaveAreRefused) {
  for (const char* key : {"partial_rotary_factor", "rotary_pct"}) {
    EXPECT_THAT(ErrorOf({{key, 0.5}}), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr(key)));
    EXPECT_THAT(ErrorOf({{key, 1.0}}), IsOk());
  }
  EXPECT_THAT(ErrorOf({{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}, {"alpha", 1000}}}}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("alpha")));
}

TEST(ModelSpec, TwoFormsOfARotationMustAgree) {
  const json yarn = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
  json both = {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000.0}}},
               {"rope_scaling", yarn}};
  EXPECT_THAT(ErrorOf(both), StatusIs(absl::StatusCode::kInvalidArgument,
                                      AllOf(HasSubstr("rope_scaling"), HasSubstr("yarn"))));
  both["rope_parameters"] = yarn;
  EXPECT_THAT(ErrorOf(both), IsOk());
}

TEST(ModelSpec, AQuantizationThatIsReadChangesNothing) {
  for (const char* method : {"fp8", "mxfp4"}) {
    const ModelSpec spec =
        Parse(Changed(LlamaConfig(), {{"quantization_config", {{"quant_method", method}}}}));
    EXPECT_EQ(spec.num_parameters(), Parse(LlamaConfig()).num_parameters());
  }
}

std::vector<int64_t> WindowsOf(const json& changes) {
  std::vector<int64_t> windows;
  for (const char* architecture : {"Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    json config = Changed(LlamaConfig(), changes);
    config["architectures"] = {architecture};
    std::vector<int64_t> found;
    for (const LayerSpec& layer : Parse(config).layers)
      found.push_back(layer.attention.window.size);
    EXPECT_TRUE(windows.empty() || windows == found) << architecture;
    windows = found;
  }
  return windows;
}

TEST(ModelSpec, QwenLayersFromMaxWindowLayersOnHaveTheWindow) {
  const json in_use = {{"use_sliding_window", true}, {"sliding_window", 16}};
  EXPECT_THAT(WindowsOf(Changed(in_use, {{"max_window_layers", 1}})), ElementsAre(0, 16, 16));
  EXPECT_THAT(WindowsOf(Changed(in_use, {{"max_window_layers", 0}})), ElementsAre(16, 16, 16));
  EXPECT_THAT(WindowsOf(Changed(in_use, {{"max_window_layers", 3}})), ElementsAre(0, 0, 0));
  EXPECT_THAT(WindowsOf(in_use), ElementsAre(0, 0, 0)) << "the default is 28 layers";
  EXPECT_THAT(WindowsOf({{"use_sliding_window", true}, {"max_window_layers", 2}}),
              ElementsAre(0, 0, 4096));
  EXPECT_THAT(WindowsOf({{"sliding_window", 16}, {"max_window_layers", 1}}), ElementsAre(0, 0, 0));
  // merge_patch() would drop the null.
  json null_window = {{"use_sliding_window", true}, {"max_window_layers", 1}};
  null_window["sliding_window"] = nullptr;
  json config = LlamaConfig();
  config["architectures"] = {"Qwen2ForCausalLM"};
  config.update(null_window);
  EXPECT_EQ(Parse(config).layers.back().attention.window, 0);
}

TEST(ModelSpec, LayerTypesSayWhichLayersHaveTheWindow) {
  const json mixed = {
      {"use_sliding_window", true},
      {"sliding_window", 16},
      {"max_window_layers", 1},
      {"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}}};
  EXPECT_THAT(WindowsOf(mixed), ElementsAre(16, 0, 16));

  json config = LlamaConfig();
  config["architectures"] = {"Qwen2ForCausalLM"};
  config.update(mixed);
  const auto error = [&](const char* key, const json& value) {
    json changed = config;
    changed[key] = value;
    return ParseModelSpec(changed, "m/config.json").status();
  };
  EXPECT_THAT(error("use_sliding_window", false),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("use_sliding_window")));
  EXPECT_THAT(error("sliding_window", nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("sliding_window")));
  EXPECT_THAT(error("sliding_window", 0),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("sliding_window")));
  EXPECT_THAT(error("layer_types", {"full_attention", "sliding_attention"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("layer_types"), HasSubstr("3"))));
  EXPECT_THAT(error("layer_types", {"chunked_attention", "full_attention", "full_attention"}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("chunked_attention")));
  config.erase("layer_types");
  EXPECT_THAT(error("max_window_layers", -1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_window_layers")));
}

TEST(ModelSpec, AWindowThatNoLayerUsesIsNoObstacle) {
  EXPECT_THAT(ErrorOf({{"use_sliding_window", false}, {"sliding_window", 16}}), IsOk());
  EXPECT_THAT(
      ErrorOf({{"use_sliding_window", true}, {"sliding_window", 16}, {"max_window_layers", 28}}),
      IsOk());
}

class BadValue : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(BadValue, IsRefusedByName) {
  const auto [key, value] = GetParam();
  EXPECT_THAT(ErrorOf({{key, json::parse(value)}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("m/config.json"), HasSubstr(key))));
}

INSTANTIATE_TEST_SUITE_P(
    Keys, BadValue,
    ::testing::Values(std::pair("vocab_size", "0"), std::pair("vocab_size", "null"),
                      std::pair("vocab_size", "1e3"), std::pair("hidden_size", "-4"),
                      std::pair("hidden_size", "9223372036854775807"),
                      std::pair("intermediate_size", "18446744073709551615"),
                      std::pair("num_hidden_layers", "\"3\""),
                      std::pair("num_attention_heads", "5"), std::pair("num_key_value_heads", "3"),
                      std::pair("head_dim", "7"), std::pair("rms_norm_eps", "-1"),
                      std::pair("rope_theta", "0"), std::pair("rope_scaling", "[1]"),
                      std::pair("tie_word_embeddings", "1"), std::pair("eos_token_id", "\"</s>\""),
                      std::pair("eos_token_id", "[1, null]"),
                      std::pair("eos_token_id", "18446744073709551615"),
                      std::pair("architectures", "[]")));

TEST(ModelSpec, ConfigThatIsNoObjectIsRefused) {
  EXPECT_THAT(ParseModelSpec(json::parse("[1]"), "x"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("object")));
}

TEST(ParameterTable, UnitsHoldTheirParametersWithoutGaps) {
  for (const char* architecture : {"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    const ModelSpec spec = Parse(Changed(
        LlamaConfig(), {{"architectures", {architecture}}, {"mlp_bias", true}, {"head_dim", 8}}));
    const ParameterTable table(spec);
    ASSERT_EQ(table.units().size(), 5);
    EXPECT_EQ(table.units().front().name, "embed");
    EXPECT_EQ(table.units()[2].name, "layers.1");
    EXPECT_EQ(table.units().back().name, "head");
    int64_t total = 0;
    std::set<std::string> names;
    for (size_t u = 0; u < table.units().size(); ++u) {
      int64_t offset = 0;
      for (int index : table.units()[u].parameters) {
        const Parameter& parameter = table.parameter(index);
        EXPECT_EQ(parameter.unit, static_cast<int>(u));
        EXPECT_EQ(parameter.offset, offset);
        int64_t row = 0;
        for (const Segment& segment : parameter.segments) {
          EXPECT_EQ(segment.offset, offset);
          EXPECT_EQ(segment.row, row);
          EXPECT_TRUE(names.insert(segment.name).second) << segment.name;
          offset += segment.numel;
          row += segment.shape[0];
        }
        EXPECT_EQ(row, parameter.shape[0]);
        EXPECT_EQ(offset, parameter.offset + parameter.numel);
      }
      EXPECT_EQ(table.units()[u].numel, offset);
      total += offset;
    }
    EXPECT_EQ(table.num_parameters(), total);
    EXPECT_EQ(spec.num_parameters(), total);
    EXPECT_EQ(table.segments().size(), names.size());
  }
}

std::vector<std::string> UnitNames(const ParameterTable& table) {
  std::vector<std::string> names;
  for (const Unit& unit : table.units()) names.push_back(unit.name);
  return names;
}

TEST(ParameterTable, LimitsGroupAndSplitUnitsAndKeepTheOrder) {
  const ModelSpec spec = Parse(LlamaConfig());
  const ParameterTable plain(spec);
  const int64_t embedding = plain.units()[0].numel;
  const int64_t layer = plain.units()[1].numel;
  for (const UnitLimits& limits :
       {UnitLimits{.min_elements = layer + 1}, UnitLimits{.max_elements = layer / 2},
        UnitLimits{.min_elements = 1 << 30}, UnitLimits{.max_elements = 1},
        UnitLimits{.min_elements = layer / 2, .max_elements = embedding}}) {
    SCOPED_TRACE(absl::StrCat(limits.min_elements, " to ", limits.max_elements));
    const ParameterTable table(spec, limits);
    ASSERT_EQ(table.segments().size(), plain.segments().size());
    int next = 0;
    for (size_t u = 0; u < table.units().size(); ++u) {
      int64_t offset = 0;
      for (const int index : table.units()[u].parameters) {
        EXPECT_EQ(index, next++);
        EXPECT_EQ(table.parameter(index).unit, static_cast<int>(u));
        EXPECT_EQ(table.parameter(index).offset, offset);
        offset += table.parameter(index).numel;
      }
      EXPECT_EQ(table.units()[u].numel, offset);
      const bool single = table.units()[u].parameters.size() == 1;
      EXPECT_TRUE(limits.max_elements == 0 || single || offset <= limits.max_elements);
    }
    EXPECT_EQ(next, static_cast<int>(table.parameters().size()));
    EXPECT_EQ(table.num_stages(), spec.num_layers() + 2);
  }
  EXPECT_EQ(UnitNames(ParameterTable(spec, {.min_elements = 1 << 30})).size(), 1u);
  EXPECT_EQ(ParameterTable(spec, {.max_elements = 1}).units().size(), plain.parameters().size());
}

TEST(ParameterTable, ATiedEmbeddingStaysAlone) {
  const ParameterTable tied(Parse(Changed(LlamaConfig(), {{"tie_word_embeddings", true}})),
                            {.min_elements = 1 << 30});
  EXPECT_EQ(UnitNames(tied).front(), "embed");
  EXPECT_EQ(tied.units().size(), 2u);
  const int last = tied.num_stages() - 1;
  EXPECT_EQ(tied.stage_parameters(last).back(), tied.embedding());
  EXPECT_EQ(tied.first_stage(0), 0);
  EXPECT_EQ(tied.first_stage(1), 1);
}

TEST(ParameterTable, TiedHeadIsTheEmbedding) {
  const ParameterTable tied(Parse(Changed(LlamaConfig(), {{"tie_word_embeddings", true}})));
  EXPECT_EQ(tied.lm_head(), tied.embedding());
  EXPECT_EQ(tied.AliasOf("lm_head.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(tied.units().back().parameters.size(), 1);
  const ParameterTable untied(Parse(LlamaConfig()));
  EXPECT_NE(untied.lm_head(), untied.embedding());
  EXPECT_EQ(untied.AliasOf("lm_head.weight"), "");
}

}  // namespace
}  // namespace tandem::model
