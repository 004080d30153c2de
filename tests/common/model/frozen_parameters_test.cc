#include "common/model/frozen_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/match.h"
#include "common/model/parameter_table.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelSpec Spec(bool tied = false) {
  ModelSpec spec;
  spec.architecture = "LlamaForCausalLM";
  spec.vocab_size = 32;
  spec.hidden_size = 16;
  spec.tie_word_embeddings = tied;
  LayerSpec layer;
  layer.feed_forward.intermediate_size = 24;
  layer.attention.num_heads = 4;
  layer.attention.num_kv_heads = 2;
  layer.attention.head_dim = 4;
  spec.layers.assign(2, layer);
  return spec;
}

const std::vector<std::string> kEmbeddingAndNorms = {"model.embed_tokens.weight", "*norm.weight"};

std::vector<std::string> UnitNames(const ParameterTable& table) {
  std::vector<std::string> names;
  for (const Unit& unit : table.units()) names.push_back(unit.name);
  return names;
}

TEST(FrozenParameters, AStarStandsForAnyCharacters) {
  EXPECT_TRUE(MatchesPattern("lm_head.weight", "lm_head.weight"));
  EXPECT_FALSE(MatchesPattern("lm_head", "lm_head.weight"));
  EXPECT_TRUE(MatchesPattern("*", ""));
  EXPECT_TRUE(MatchesPattern("*norm.weight", "model.norm.weight"));
  EXPECT_TRUE(MatchesPattern("model.layers.*.mlp.*.weight", "model.layers.10.mlp.up_proj.weight"));
  EXPECT_FALSE(MatchesPattern("model.layers.1.*", "model.layers.10.mlp.up_proj.weight"));
  EXPECT_FALSE(MatchesPattern("*.weight", "model.layers.0.q_proj.bias"));
}

TEST(FrozenParameters, PatternsThatCannotBeHonouredAreRefused) {
  const ModelSpec spec = Spec();
  const auto refused = [](auto matcher) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(HasSubstr("trainer.frozen_parameters"), matcher));
  };
  EXPECT_OK(CheckFrozenParameters(spec, {}));
  EXPECT_OK(CheckFrozenParameters(spec, kEmbeddingAndNorms));
  EXPECT_OK(CheckFrozenParameters(spec, {"*.q_proj.weight", "*.k_proj.*", "*.v_proj.*"}));
  EXPECT_THAT(CheckFrozenParameters(spec, {"*norm.weight", "model.embed.weight"}),
              refused(HasSubstr("'model.embed.weight' matches no tensor")));
  EXPECT_THAT(CheckFrozenParameters(spec, {"*.0.self_attn.q_proj.weight"}),
              refused(AllOf(HasSubstr("model.layers.0.self_attn.q_proj.weight cannot be frozen"),
                            HasSubstr("model.layers.0.self_attn.v_proj.weight"))));
  EXPECT_THAT(CheckFrozenParameters(spec, {"model.*", "lm_head.weight"}),
              refused(HasSubstr("at least one")));
}

TEST(FrozenParameters, ATiedHeadIsFrozenByTheEmbeddingsName) {
  const ModelSpec tied = Spec(/*tied=*/true);
  EXPECT_THAT(CheckFrozenParameters(tied, {"lm_head.weight"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("model.embed_tokens.weight")));
  const ParameterTable table(tied, {.frozen_parameters = {"model.embed_tokens.weight"}});
  EXPECT_FALSE(table.parameter(table.lm_head()).trainable);
}

TEST(FrozenParameters, HaveUnitsOfTheirOwn) {
  const ModelSpec spec = Spec();
  const ParameterTable plain(spec);
  for (const UnitLimits& limits :
       {UnitLimits{}, UnitLimits{.min_elements = 4000}, UnitLimits{.min_elements = 1 << 30},
        UnitLimits{.max_elements = 300}, UnitLimits{.max_elements = 1}}) {
    UnitLimits frozen = limits;
    frozen.frozen_parameters = kEmbeddingAndNorms;
    const ParameterTable table(spec, frozen);
    EXPECT_TRUE(table.has_frozen());
    std::set<int> seen;
    for (size_t u = 0; u < table.units().size(); ++u) {
      const Unit& unit = table.units()[u];
      EXPECT_EQ(absl::EndsWith(unit.name, "/frozen"), !unit.trainable);
      int64_t offset = 0;
      for (const int index : unit.parameters) {
        const Parameter& parameter = table.parameter(index);
        EXPECT_EQ(parameter.trainable, unit.trainable) << parameter.name;
        EXPECT_EQ(parameter.unit, static_cast<int>(u));
        EXPECT_EQ(parameter.offset, offset);
        offset += parameter.numel;
        EXPECT_TRUE(seen.insert(index).second);
      }
      EXPECT_EQ(unit.numel, offset);
    }
    EXPECT_EQ(seen.size(), table.parameters().size());
    // What the wire and files use does not change.
    ASSERT_EQ(table.segments().size(), plain.segments().size());
    for (size_t i = 0; i < plain.segments().size(); ++i) {
      EXPECT_EQ(table.segment(table.segments()[i]).name, plain.segment(plain.segments()[i]).name);
    }
  }
}

TEST(FrozenParameters, OfSeveralStagesAreMergedAmongThemselves) {
  const ModelSpec spec = Spec();
  EXPECT_THAT(UnitNames(ParameterTable(spec, {.frozen_parameters = kEmbeddingAndNorms})),
              ElementsAre("embed/frozen", "layers.0", "layers.0/frozen", "layers.1",
                          "layers.1/frozen", "head", "head/frozen"));
  EXPECT_THAT(UnitNames(ParameterTable(
                  spec, {.min_elements = 1 << 30, .frozen_parameters = kEmbeddingAndNorms})),
              ElementsAre("embed-head/frozen", "layers.0-head"));
}

TEST(FrozenParameters, BeforeTheFirstTrainableOneNeedNoBackward) {
  const ModelSpec spec = Spec();
  EXPECT_EQ(ParameterTable(spec).first_trainable_stage(), 0);
  EXPECT_EQ(ParameterTable(spec, {.frozen_parameters = kEmbeddingAndNorms}).first_trainable_stage(),
            1);
  EXPECT_EQ(ParameterTable(spec, {.frozen_parameters = {"model.*"}}).first_trainable_stage(), 3);
}

}  // namespace
}  // namespace tandem::model
