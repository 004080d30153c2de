#include "common/rank_setup/router_checks.h"

#include <gtest/gtest.h>

#include <string>

#include "common/config/load.h"
#include "tests/support/status_matchers.h"

namespace tandem::setup {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

config::v1::RunConfig With(const std::string& assignment) {
  const auto config = config::LoadRunConfig({}, {assignment});
  EXPECT_OK(config.status());
  return *config;
}

model::ModelSpec Dense() {
  model::ModelSpec spec;
  spec.vocab_size = 20;
  spec.hidden_size = 8;
  spec.layers.resize(2);
  for (model::LayerSpec& layer : spec.layers) {
    layer.attention.num_heads = layer.attention.num_kv_heads = 2;
    layer.attention.head_dim = 4;
    layer.feed_forward.intermediate_size = 12;
  }
  return spec;
}

model::ModelSpec WithExperts(bool corrects) {
  model::ModelSpec spec = Dense();
  spec.layers[1].experts = {.num_experts = 4,
                            .intermediate_size = 6,
                            .routing = {.top_k = 2, .correction_bias = corrects}};
  return spec;
}

constexpr const char* kKeys[] = {"actor.router_aux_loss_coef=0.1", "actor.router_z_loss_coef=0.1",
                                 "actor.router_replay=r3", "actor.router_bias_update_rate=0.1"};

TEST(RouterChecks, NeedAModelWithExperts) {
  for (const std::string key : kKeys) {
    EXPECT_THAT(
        CheckRouters(With(key), Dense()),
        StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr(key.substr(0, key.find('='))),
                                                           HasSubstr("no layer with experts"))));
    EXPECT_OK(CheckRouters(With(key), WithExperts(/*corrects=*/true)));
  }
  EXPECT_OK(CheckRouters(config::DefaultRunConfig(), Dense()));
}

TEST(RouterChecks, ARateNeedsABiasThatIsNotFrozen) {
  config::v1::RunConfig config = With("actor.router_bias_update_rate=0.1");
  EXPECT_THAT(CheckRouters(config, WithExperts(/*corrects=*/false)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no correction bias")));
  config.mutable_trainer()->add_frozen_parameters("*correction_bias");
  EXPECT_THAT(CheckRouters(config, WithExperts(/*corrects=*/true)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("trainer.frozen_parameters names all correction biases")));
}

TEST(RouterChecks, OneLossNeedsAsManyExpertsInAllLayers) {
  model::ModelSpec spec = WithExperts(/*corrects=*/false);
  spec.layers[0].experts = spec.layers[1].experts;
  spec.layers[0].experts->num_experts = 8;
  EXPECT_THAT(CheckRouters(With("actor.router_aux_loss_coef=0.1"), spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("8 and 4")));
  EXPECT_OK(CheckRouters(With("actor.router_replay=r3"), spec));
}

TEST(RouterChecks, NameTheCommandThatLeavesTheKeyOut) {
  for (const std::string key : kKeys) {
    const config::v1::RunConfig config = With(key);
    EXPECT_THAT(
        CheckRoutersOf("dpo", config.actor()),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has no effect in tandem dpo")));
    EXPECT_OK(CheckRoutersOf("train", config.actor()));
    if (key == kKeys[2]) continue;
    EXPECT_OK(CheckRoutersOf("sft", config.actor()));
  }
  EXPECT_THAT(CheckRoutersOf("sft", With("actor.router_replay=r3").actor()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tandem sft")));
}

}  // namespace
}  // namespace tandem::setup
