// The table of families: what a row inherits, what is wrong with a file, and names of tensors.
#include "common/model/families/family_table.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/families/row_config.h"
#include "common/model/model_spec.h"
#include "nlohmann/json.hpp"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::model {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kPlain[] = R"(
families:
- architecture: PlainForCausalLM
  model_type: plain
  vocab_size: vocab_size
  hidden_size: hidden_size
  num_layers: num_hidden_layers
  num_heads: num_attention_heads
  num_kv_heads: num_heads
  head_dim: hidden / num_heads
  intermediate_size: 4 * hidden
  max_positions: 128
  initializer_range: 0.02
  norm_eps: [norm_eps, 1e-5]
  activation: [act, silu]
  windows: {size: [window, 8], full_every: 2}
  weights:
  - {name: lm_head, tensor: output}
  ignored_tensors: "*.inv_freq"
  optional_prefixes: body.
)";

FamilyTable PlainTable() {
  FamilyTable table;
  EXPECT_OK(table.Add(kPlain, "plain.yaml"));
  return table;
}

std::string ErrorOf(const std::string& rows) {
  FamilyTable table = PlainTable();
  const absl::Status status = table.Add("families:\n" + rows, "own.yaml");
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("own.yaml")));
  EXPECT_EQ(table.rows().size(), 1) << "the table is unchanged";
  return std::string(status.message());
}

TEST(FamilyTable, ARowWithALatentStatesItsSizes) {
  EXPECT_THAT(
      ErrorOf("- {architecture: OwnForCausalLM, like: PlainForCausalLM, latent: {kv_rank: 8, "
              "rope_dim: 4}}\n"),
      AllOf(HasSubstr("own.yaml:2"), HasSubstr("latent.nope_dim")));
  FamilyTable table = PlainTable();
  EXPECT_OK(
      table.Add("families:\n- {architecture: OwnForCausalLM, like: PlainForCausalLM, latent: "
                "{kv_rank: 8, nope_dim: 6, rope_dim: 4}}\n",
                "own.yaml"));
}

TEST(FamilyTable, ARowStatesOnlyWhatDiffers) {
  FamilyTable table = PlainTable();
  ASSERT_OK(table.Add(R"(
families:
- architecture: ThirdForCausalLM
  like: SecondForCausalLM
  norm: layer
- architecture: SecondForCausalLM
  model_type: second
  like: PlainForCausalLM
  norm_eps: 1e-3
  windows: {full_every: [pattern, 3]}
  weights:
  - {name: model.norm, tensor: final}
  ignored_tensors: "*.mask"
  optional_prefixes: trunk.
)",
                      "own.yaml"));
  const v1::FamilyRow* const row = table.FindArchitecture("ThirdForCausalLM");
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->model_type(), "second");
  EXPECT_EQ(row->norm(), v1::NORM_KIND_LAYER);
  EXPECT_THAT(row->norm_eps(), ElementsAre("1e-3"));
  EXPECT_THAT(row->intermediate_size(), ElementsAre("4 * hidden"));
  EXPECT_THAT(row->windows().size(), ElementsAre("window", "8"));
  EXPECT_THAT(row->windows().full_every(), ElementsAre("pattern", "3"));
  ASSERT_EQ(row->weights_size(), 2);
  EXPECT_EQ(row->weights(0).tensor(), "final");
  EXPECT_THAT(row->ignored_tensors(), ElementsAre("*.mask", "*.inv_freq"));
  EXPECT_THAT(row->optional_prefixes(), ElementsAre("trunk."));
  EXPECT_EQ(table.FindModelType("second")->architecture(), "ThirdForCausalLM");
}

TEST(FamilyTable, ARowMayTakeThePlaceOfTheOneThatItIsLike) {
  FamilyTable table = PlainTable();
  ASSERT_OK(table.Add(
      "families:\n- {architecture: PlainForCausalLM, like: PlainForCausalLM, norm_eps: 1}",
      "own.yaml"));
  EXPECT_EQ(table.rows().size(), 1);
  EXPECT_THAT(table.FindArchitecture("PlainForCausalLM")->norm_eps(), ElementsAre("1"));
  EXPECT_THAT(table.FindArchitecture("PlainForCausalLM")->activation(), ElementsAre("act", "silu"));
}

constexpr char kExperts[] = R"(
families:
- architecture: MyMoeForCausalLM
  model_type: my_moe
  like: PlainForCausalLM
  experts:
    num_experts: [n_experts, 64]
    top_k: [experts_per_token, 6]
    intermediate_size: moe_intermediate_size
    score: sigmoid
    correction_bias: true
    num_groups: [n_group, 1]
    top_groups: [topk_group, 1]
    group_score: sum_of_two
    normalize: [norm_topk_prob, true]
    scale: [routed_scaling_factor, 1]
    shared_intermediate_size: [moe_intermediate_size]
    num_shared: [n_shared_experts, 1]
    first_layer: [first_k_dense_replace, 1]
    last_layer: [last_moe_layer, -1]
    layer_interval: [moe_interval, 1]
    layer_kinds: kinds
  layer_weights:
  - {name: ["mlp.experts.{expert}.gate_proj.weight", "mlp.experts.{expert}.up_proj.weight"],
     tensor: mlp.experts.gate_up_proj, fusion: stacked, transposed: true}
  extra_layers: [num_nextn_predict_layers, 0]
)";

nlohmann::json ExpertsConfig(const nlohmann::json& changes) {
  nlohmann::json config = {{"vocab_size", 50},
                           {"hidden_size", 16},
                           {"num_hidden_layers", 4},
                           {"num_attention_heads", 2},
                           {"n_experts", 8},
                           {"experts_per_token", 2},
                           {"moe_intermediate_size", 6},
                           {"n_shared_experts", 2},
                           {"n_group", 4},
                           {"topk_group", 2},
                           {"routed_scaling_factor", 2.5}};
  if (!changes.is_null()) config.update(changes);  // {} is null
  return config;
}

absl::StatusOr<ModelSpec> ParseExpertsRow(const nlohmann::json& config) {
  FamilyTable table = PlainTable();
  EXPECT_OK(table.Add(kExperts, "own.yaml"));
  return ParseRow(*table.FindArchitecture("MyMoeForCausalLM"), ConfigReader(config, "config.json"));
}

std::vector<bool> HasExperts(const nlohmann::json& changes) {
  std::vector<bool> has;
  const absl::StatusOr<ModelSpec> spec = ParseExpertsRow(ExpertsConfig(changes));
  EXPECT_OK(spec);
  for (const LayerSpec& layer : spec->layers) has.push_back(layer.experts.has_value());
  return has;
}

TEST(FamilyTable, AFileDescribesExperts) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseExpertsRow(ExpertsConfig({})));
  EXPECT_FALSE(spec.layers[0].experts.has_value());
  EXPECT_EQ(spec.layers[1].experts,
            (ExpertSpec{.num_experts = 8,
                        .intermediate_size = 6,
                        .routing = {.top_k = 2,
                                    .normalize = true,
                                    .score = RoutingSpec::Score::kSigmoid,
                                    .correction_bias = true,
                                    .num_groups = 4,
                                    .top_groups = 2,
                                    .group_score = RoutingSpec::GroupScore::kSumOfTwo,
                                    .scale = 2.5},
                        .shared_intermediate_size = 12,
                        .shared_gate = false}));
  EXPECT_EQ(spec.stored_rules.back().tensor, "model.layers.{layer}.mlp.experts.gate_up_proj");
  EXPECT_THAT(spec.ignored_tensors, ElementsAre("*.inv_freq"));
}

TEST(FamilyTable, APatternOrAListSaysWhichLayersHaveExperts) {
  EXPECT_THAT(HasExperts({}), ElementsAre(false, true, true, true));
  EXPECT_THAT(HasExperts({{"first_k_dense_replace", 0}}), ElementsAre(true, true, true, true));
  EXPECT_THAT(HasExperts({{"last_moe_layer", 2}}), ElementsAre(false, true, true, false));
  EXPECT_THAT(HasExperts({{"last_moe_layer", -1}}), ElementsAre(false, true, true, true));
  EXPECT_THAT(HasExperts({{"moe_interval", 2}}), ElementsAre(false, true, false, true));
  EXPECT_THAT(HasExperts({{"kinds", {"sparse", "dense", "dense", "sparse"}}}),
              ElementsAre(true, false, false, true));
  EXPECT_THAT(HasExperts({{"kinds", {false, true, false, true}}}),
              ElementsAre(false, true, false, true));
  EXPECT_THAT(HasExperts({{"n_experts", 0}}), ElementsAre(false, false, false, false));
}

TEST(FamilyTable, AKeyMayHaveAValueForEachLayer) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec,
                       ParseExpertsRow(ExpertsConfig({{"experts_per_token", {1, 2, 3, 4}},
                                                      {"moe_intermediate_size", {6, 7, 8, 9}}})));
  EXPECT_EQ(spec.layers[1].experts->routing.top_k, 2);
  EXPECT_EQ(spec.layers[3].experts->routing.top_k, 4);
  EXPECT_EQ(spec.layers[3].experts->intermediate_size, 9);
  EXPECT_EQ(spec.layers[3].experts->shared_intermediate_size, 18);
}

TEST(FamilyTable, LayersBehindTheLastAreIgnored) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec,
                       ParseExpertsRow(ExpertsConfig({{"num_nextn_predict_layers", 2}})));
  EXPECT_THAT(spec.ignored_tensors,
              ElementsAre("*.inv_freq", "model.layers.4.*", "model.layers.5.*"));
}

TEST(FamilyTable, ExpertsThatNoModelHasAreNamed) {
  const auto error = [](const nlohmann::json& changes) {
    const absl::Status status = ParseExpertsRow(ExpertsConfig(changes)).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("config.json")));
    return std::string(status.message());
  };
  EXPECT_THAT(error({{"experts_per_token", 9}}), HasSubstr("\"experts_per_token\""));
  EXPECT_THAT(error({{"n_group", 3}}), AllOf(HasSubstr("\"n_group\""), HasSubstr("divisor")));
  EXPECT_THAT(error({{"topk_group", 5}}), HasSubstr("\"topk_group\" must be at most"));
  EXPECT_THAT(error({{"experts_per_token", 5}}), HasSubstr("they have 4"));
  EXPECT_THAT(error({{"experts_per_token", {1, 2}}}), HasSubstr("one for each of 4 layers"));
  EXPECT_THAT(error({{"kinds", {"sparse"}}}), HasSubstr("a list of 4 kinds"));
  EXPECT_THAT(ParseExpertsRow(ExpertsConfig({{"kinds", {"a", "b", "c", "d"}}})).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("dense, sparse")));
  nlohmann::json config = ExpertsConfig({});
  config.erase("moe_intermediate_size");
  EXPECT_THAT(ParseExpertsRow(config),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("moe_intermediate_size")));
}

TEST(FamilyTable, ExpertsNeedTheirSizes) {
  EXPECT_THAT(ErrorOf("- architecture: X\n  like: PlainForCausalLM\n  experts: {num_experts: 4}\n"),
              AllOf(HasSubstr("own.yaml:4: families[0].experts.top_k: expected a value"),
                    HasSubstr("families[0].experts.intermediate_size")));
}

TEST(FamilyTable, ErrorsNameFileAndLine) {
  EXPECT_EQ(ErrorOf("- architecture: X\n  like: PlainForCausalML\n"),
            "own.yaml:3: families[0].like: no row for PlainForCausalML; did you mean "
            "PlainForCausalLM?");
  EXPECT_THAT(
      ErrorOf("- architecture: X\n  like: PlainForCausalLM\n  norm_epps: 1\n"),
      AllOf(HasSubstr("own.yaml:4: families[0].norm_epps: unknown key"), HasSubstr("'norm_eps'")));
  EXPECT_THAT(ErrorOf("- architecture: X\n  like: PlainForCausalLM\n  norm: rmss\n"),
              AllOf(HasSubstr("own.yaml:4"), HasSubstr("'rms'")));
  EXPECT_THAT(ErrorOf("- architecture: X\n  like: PlainForCausalLM\n  norm_eps: 2 * hidden\n"),
              HasSubstr("own.yaml:4: families[0].norm_eps: expected a key of config.json or a "
                        "constant, found \"2 * hidden\""));
  EXPECT_THAT(ErrorOf("- architecture: X\n  like: PlainForCausalLM\n  norm_eps: [1, eps]\n"),
              HasSubstr("after which nothing counts"));
  EXPECT_THAT(ErrorOf("- architecture: X\n  model_type: x\n"),
              HasSubstr("own.yaml:2: families[0].vocab_size: expected a value"));
  EXPECT_THAT(ErrorOf("- like: PlainForCausalLM\n"), HasSubstr("families[0].architecture"));
  EXPECT_THAT(ErrorOf("- {architecture: X, like: Y}\n- {architecture: Y, like: X}\n"),
              HasSubstr("families[0].like: leads in a circle to X"));
  EXPECT_THAT(ErrorOf("- {architecture: X, like: PlainForCausalLM}\n"
                      "- {architecture: X, like: PlainForCausalLM}\n"),
              HasSubstr("own.yaml:3: families[1].architecture: a second row for X"));
}

TEST(FamilyTable, RowsAndChainsOfRowsAreBounded) {
  std::string chain;
  for (int i = 0; i < 20; ++i) {
    absl::StrAppend(&chain, "- {architecture: X", i,
                    ", like: ", i == 0 ? "PlainForCausalLM" : absl::StrCat("X", i - 1), "}\n");
  }
  EXPECT_THAT(ErrorOf(chain), HasSubstr("like: leads through more than 16 rows"));
  std::string many;
  for (int i = 0; i < 257; ++i) {
    absl::StrAppend(&many, "- {architecture: X", i, ", like: PlainForCausalLM}\n");
  }
  EXPECT_THAT(ErrorOf(many), HasSubstr("own.yaml: families: expected at most 256 rows"));
}

TEST(FamilyTable, ARowWithinItsOwnVariantsIsRefused) {
  EXPECT_THAT(ErrorOf("- &a {architecture: X, like: PlainForCausalLM, variants: [*a]}\n"),
              AllOf(HasSubstr("own.yaml:2: families[0].variants[0].variants[0]"),
                    HasSubstr("an alias (*) stand within its own anchor (&)")));
  EXPECT_THAT(
      ErrorOf("- {architecture: X, like: PlainForCausalLM, variants: [{when: a, variants: [{}]}]}"),
      HasSubstr("families[0].variants[0].variants: a variant has none"));
}

TEST(FamilyTable, AliasesOfAliasesAreBounded) {
  std::string rows = "- &r0 {architecture: X0, like: PlainForCausalLM}\n";
  for (int i = 1; i <= 8; ++i) {
    absl::StrAppend(&rows, "- &r", i, " {architecture: X", i, ", variants: [*r", i - 1);
    for (int j = 1; j < 12; ++j) absl::StrAppend(&rows, ", *r", i - 1);
    absl::StrAppend(&rows, "]}\n");
  }
  EXPECT_THAT(ErrorOf(rows), HasSubstr("use fewer aliases"));
}

TEST(FamilyTable, PartsOfRowsAreChecked) {
  const auto error = [](const std::string& part) {
    return ErrorOf("- architecture: X\n  like: PlainForCausalLM\n  " + part + "\n");
  };
  EXPECT_THAT(error("when: key"), HasSubstr("own.yaml:4: families[0].when: only a variant"));
  EXPECT_THAT(error("variants: [{norm: layer}]"), HasSubstr("families[0].variants[0].when"));
  EXPECT_THAT(error("variants: [{when: a, like: PlainForCausalLM}]"),
              HasSubstr("variants[0].like: a variant has none"));
  EXPECT_THAT(error("variants: [{when: a, is: yes and no}]"), HasSubstr("expected JSON"));
  EXPECT_THAT(error("rope_parameters: '[1]'"), HasSubstr("expected an object in JSON"));
  EXPECT_THAT(error("norm_eps: nan"), HasSubstr("norm_eps: expected a finite number"));
  EXPECT_THAT(error("windows: {size: [a, inf]}"), HasSubstr("expected a finite number"));
  EXPECT_THAT(error("require: [{key: a}]"), HasSubstr("require[0].values"));
  EXPECT_THAT(error("require: [{key: a, values: [no]}]"), HasSubstr("JSON or a constant"));
  EXPECT_THAT(error("weights: [{name: a}]"), HasSubstr("weights[0].tensor"));
  EXPECT_THAT(error("weights: [{name: [a, b], tensor: c}]"), HasSubstr("weights[0].fusion"));
  EXPECT_THAT(error("weights: [{name: a, tensor: c, fusion: stacked}]"), HasSubstr("fusion"));
}

TEST(FamilyTable, AVariantCountsWhereConfigSaysSo) {
  FamilyTable table = PlainTable();
  ASSERT_OK(table.Add(R"(
families:
- architecture: X
  like: PlainForCausalLM
  variants:
  - {when: options.gate, is: '"off"', gated: false}
  - {when: bias, absent: true, mlp_bias: true}
)",
                      "own.yaml"));
  nlohmann::json config = {
      {"vocab_size", 9}, {"hidden_size", 8}, {"num_hidden_layers", 3}, {"num_attention_heads", 2}};
  const auto parse = [&] {
    return ParseRow(*table.FindArchitecture("X"), ConfigReader(config, "config.json"));
  };
  ASSERT_OK_AND_ASSIGN(const ModelSpec without, parse());
  EXPECT_TRUE(without.layers[0].feed_forward.gated);
  EXPECT_TRUE(without.layers[0].feed_forward.bias);
  EXPECT_EQ(without.layers[0].feed_forward.intermediate_size, 32);
  config["options"] = {{"gate", "off"}};
  config["bias"] = false;
  ASSERT_OK_AND_ASSIGN(const ModelSpec with, parse());
  EXPECT_FALSE(with.layers[0].feed_forward.gated);
  EXPECT_FALSE(with.layers[0].feed_forward.bias);
  EXPECT_EQ(with.layers[0].attention.window, 8);
  EXPECT_EQ(with.layers[1].attention.window, 0);
}

TEST(FamilyTable, ChunksAreOfTheLayersThatRotate) {
  FamilyTable table = PlainTable();
  ASSERT_OK(table.Add(R"(
families:
- architecture: X
  like: PlainForCausalLM
  windows: {size: [chunk, 0], full_every: 0, chunked: true, rotated: true}
  rope_layers: listed
  query_scale: {factor: 0.5, interval: [chunk]}
- architecture: Y
  like: X
  rope_layers: windowed_or_all
)",
                      "own.yaml"));
  const nlohmann::json config = {
      {"vocab_size", 9},          {"hidden_size", 8}, {"num_hidden_layers", 3},
      {"num_attention_heads", 2}, {"chunk", 12},      {"no_rope_layers", {1, 0, 1}}};
  const auto parse = [&](const char* name) {
    return ParseRow(*table.FindArchitecture(name), ConfigReader(config, "config.json"));
  };
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, parse("X"));
  EXPECT_EQ(spec.layers[0].attention.window, Window(12, /*in_chunks=*/true));
  EXPECT_EQ(spec.layers[1].attention.window, Window(0));
  EXPECT_FALSE(spec.layers[0].attention.query_position_scale.has_value());
  EXPECT_EQ(spec.layers[1].attention.query_position_scale,
            (QueryPositionScale{.beta = 0.5, .original_max_position_embeddings = 12, .first = 1}));
  EXPECT_THAT(parse("Y"), StatusIs(absl::StatusCode::kInvalidArgument,
                                   AllOf(HasSubstr("config.json"), HasSubstr("windows.rotated"))));
}

TEST(FamilyTable, AKeyWithoutAConstantMustBeThere) {
  const FamilyTable table = PlainTable();
  const nlohmann::json config = {{"vocab_size", 9}, {"hidden_size", 8}, {"num_hidden_layers", 3}};
  EXPECT_THAT(ParseRow(table.rows()[0], ConfigReader(config, "m/config.json")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("m/config.json"), HasSubstr("num_attention_heads"))));
}

TEST(FamilyTable, RulesNameWeightsAndBiases) {
  const v1::FamilyRow* const row = Families().FindArchitecture("GPT2LMHeadModel");
  nlohmann::json config = {{"vocab_size", 9}, {"n_embd", 8}, {"n_layer", 1}, {"n_head", 2}};
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseRow(*row, ConfigReader(config, "config.json")));
  const auto rule = [&](const std::string& name) {
    for (const StoredRule& of_spec : spec.stored_rules) {
      if (of_spec.name == name) return of_spec;
    }
    return StoredRule{};
  };
  const std::string layer = "model.layers.{layer}.";
  EXPECT_EQ(rule("model.embed_tokens.weight").tensor, "transformer.wte.weight");
  const StoredRule q = rule(layer + "self_attn.q_proj.weight");
  EXPECT_EQ(q.tensor, "transformer.h.{layer}.attn.c_attn.weight");
  EXPECT_EQ(q.fusion, StoredFusion::kStacked);
  EXPECT_TRUE(q.transposed);
  EXPECT_THAT(q.parts,
              ElementsAre(layer + "self_attn.q_proj.weight", layer + "self_attn.k_proj.weight",
                          layer + "self_attn.v_proj.weight"));
  const StoredRule bias = rule(layer + "self_attn.v_proj.bias");
  EXPECT_EQ(bias.tensor, "transformer.h.{layer}.attn.c_attn.bias");
  EXPECT_FALSE(bias.transposed);
  EXPECT_THAT(bias.parts,
              ElementsAre(layer + "self_attn.q_proj.bias", layer + "self_attn.k_proj.bias",
                          layer + "self_attn.v_proj.bias"));
  EXPECT_THAT(rule(layer + "mlp.up_proj.bias").parts, IsEmpty());
}

TEST(FamilyFile, AddsFamiliesToTheProcess) {
  const testing::TempFolder folder;
  const std::string path =
      folder.Write("families.yaml",
                   "families:\n- {architecture: OwnLlamaForCausalLM, model_type: own, like: "
                   "LlamaForCausalLM, qkv_bias: true}\n");
  const nlohmann::json config = {{"architectures", {"OwnLlamaForCausalLM"}},
                                 {"vocab_size", 9},
                                 {"hidden_size", 8},
                                 {"intermediate_size", 12},
                                 {"num_hidden_layers", 1},
                                 {"num_attention_heads", 2}};
  EXPECT_THAT(ParseModelSpec(config, "m/config.json"),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("OwnLlamaForCausalLM"), HasSubstr("LlamaForCausalLM"),
                             HasSubstr("common/model/README.md"))));
  ASSERT_OK(AddFamilyFile(path));
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(config, "m/config.json"));
  EXPECT_EQ(spec.architecture, "OwnLlamaForCausalLM");
  EXPECT_TRUE(spec.layers[0].attention.qkv_bias);

  EXPECT_OK(AddFamilyFile(""));
  EXPECT_THAT(AddFamilyFile(folder / "absent.yaml"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("model.family_file")));
  const std::string bad = folder.Write("bad.yaml", "families:\n- norm: rms\n");
  EXPECT_THAT(AddFamilyFile(bad),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(bad + ":2")));
}

}  // namespace
}  // namespace tandem::model
