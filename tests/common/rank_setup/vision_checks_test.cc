#include "common/rank_setup/vision_checks.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/config/load.h"
#include "tests/support/status_matchers.h"

namespace tandem::setup {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

config::v1::RunConfig With(const std::vector<std::string>& assignments) {
  const auto config = config::LoadRunConfig({}, assignments);
  EXPECT_OK(config.status());
  return *config;
}

model::ModelSpec Spec(bool with_tower) {
  model::ModelSpec spec;
  spec.vocab_size = 20;
  spec.hidden_size = 8;
  spec.layers.resize(2);
  for (model::LayerSpec& layer : spec.layers) {
    layer.attention.num_heads = layer.attention.num_kv_heads = 2;
    layer.attention.head_dim = 4;
    layer.feed_forward.intermediate_size = 12;
  }
  if (!with_tower) return spec;
  model::VisionSpec& tower = spec.vision.emplace();
  tower.patch_size = 4;
  tower.temporal_patch_size = tower.merge_size = 2;
  tower.hidden_size = 8;
  tower.layers = spec.layers;
  return spec;
}

TEST(VisionChecks, RefuseByNameWhatSeesNoImages) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> refused = {
      {"model.attn_implementation", {"model.attn_implementation=eager"}},
      {"algorithm.adv_estimator", {"algorithm.adv_estimator=gae"}},
      {"actor.vision_lr", {"actor.vision_lr=1e-5", "actor.optim.name=muon"}},
  };
  for (const auto& [key, assignments] : refused) {
    EXPECT_THAT(CheckVision(With(assignments), Spec(/*with_tower=*/true)),
                StatusIs(absl::StatusCode::kUnimplemented, HasSubstr(key)));
  }
  for (const auto& [key, assignments] : refused) {
    if (key == "actor.vision_lr") continue;
    EXPECT_OK(CheckVision(With(assignments), Spec(/*with_tower=*/false)));
  }
  EXPECT_OK(CheckVision(With({"trainer.ranks=2", "actor.vision_lr=1e-5"}), Spec(true)));
}

TEST(VisionChecks, TakeEveryMeshAndOffload) {
  for (const std::vector<std::string>& assignments : std::vector<std::vector<std::string>>{
           {"trainer.ranks=2", "trainer.mesh_shape=[2]", "trainer.mesh_dim_names=[tp]"},
           {"trainer.ranks=2", "trainer.ulysses_sequence_parallel_size=2"},
           {"trainer.mesh=auto"},
           {"trainer.offload=disk"}}) {
    EXPECT_OK(CheckVision(With(assignments), Spec(/*with_tower=*/true)));
  }
}

TEST(VisionChecks, ARateNeedsATowerAndARateToFollow) {
  EXPECT_THAT(CheckVision(With({"actor.vision_lr=1e-5"}), Spec(/*with_tower=*/false)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("actor.vision_lr: the model has no vision tower")));
  EXPECT_THAT(CheckVision(With({"actor.vision_lr=1e-5", "actor.optim.lr=0"}), Spec(true)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("actor.optim.lr above 0")));
  config::v1::RunConfig frozen = With({"actor.vision_lr=1e-5"});
  frozen.mutable_trainer()->add_frozen_parameters("visual.*");
  EXPECT_THAT(CheckVision(frozen, Spec(true)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("names the whole tower")));
}

TEST(VisionChecks, ATowerIsTrainedWhereThereIsARate) {
  EXPECT_FALSE(TrainsVision(With({}), Spec(true)));
  EXPECT_TRUE(TrainsVision(With({"actor.vision_lr=1e-5"}), Spec(true)));
  EXPECT_FALSE(TrainsVision(With({"actor.vision_lr=1e-5"}), Spec(false)));
}

}  // namespace
}  // namespace tandem::setup
