#include "common/sharding/pass_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/sharding/tiny_model.h"

namespace tandem::sharding {
namespace {

using ::testing::ElementsAre;

TEST(PassStages, GoForwardThroughAllAndBackWithoutTheHead) {
  const model::ParameterTable table(TwoLayers(/*tied=*/false));
  const PassStages stages(table, Saves::kEverything, 1);
  EXPECT_EQ(stages.head(), 3);
  EXPECT_THAT(stages.UnitsOfSteps(/*backward=*/false),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3)));
  const auto steps = stages.UnitsOfSteps(/*backward=*/true);
  ASSERT_EQ(steps.size(), 7U);
  for (int s = 0; s < stages.head(); ++s) {
    EXPECT_EQ(steps[stages.BackwardStep(s)], steps[s]) << "stage " << s;
  }
}

TEST(PassStages, OfFrozenParametersGoBackToTheFirstTrainableOne) {
  const model::ParameterTable table(
      TwoLayers(/*tied=*/false),
      {.frozen_parameters = {"model.embed_tokens.weight", "*layers.0*"}});
  const PassStages stages(table, Saves::kEverything, 1);
  EXPECT_FALSE(stages.HasBackward(0));
  EXPECT_FALSE(stages.HasBackward(1));
  EXPECT_TRUE(stages.HasBackward(2));
  EXPECT_EQ(stages.UnitsOfSteps(/*backward=*/true).size(), 5U);
  EXPECT_EQ(stages.SavesOf(1), Saves::kNothing);
  EXPECT_TRUE(stages.GradientsOf(0).empty());
}

TEST(PassStages, CheckpointEveryNthBlockAndNeverTheEmbedding) {
  model::ModelSpec spec = TwoLayers(/*tied=*/false);
  spec.layers.assign(3, spec.layers[0]);
  const model::ParameterTable table(spec);
  const PassStages stages(table, Saves::kNothing, 2);
  EXPECT_EQ(stages.SavesOf(0), Saves::kEverything);
  EXPECT_EQ(stages.SavesOf(1), Saves::kNothing);
  EXPECT_EQ(stages.SavesOf(2), Saves::kEverything);
  EXPECT_EQ(stages.SavesOf(3), Saves::kNothing);
}

TEST(PassStages, CompleteATiedEmbeddingAtItsFirstStageOnly) {
  const model::ParameterTable table(TwoLayers(/*tied=*/true));
  const PassStages stages(table, Saves::kEverything, 1);
  const int embedding = table.parameter(table.embedding()).unit;
  EXPECT_EQ(stages.shared_unit(), embedding);
  bool reaches_embedding = false;
  for (const UnitGradients& unit : stages.GradientsOf(stages.head())) {
    reaches_embedding |= unit.unit == embedding;
    EXPECT_EQ(unit.completes, unit.unit != embedding);
  }
  EXPECT_TRUE(reaches_embedding);
  ASSERT_EQ(stages.GradientsOf(0).size(), 1U);
  EXPECT_TRUE(stages.GradientsOf(0)[0].completes);

  const model::ParameterTable untied(TwoLayers(/*tied=*/false));
  EXPECT_EQ(PassStages(untied, Saves::kEverything, 1).shared_unit(), -1);
}

}  // namespace
}  // namespace tandem::sharding
