#include "common/rank_setup/vision_checks.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/model/parameter_table.h"
#include "common/rank_setup/rank_setup.h"

namespace tandem::setup {
namespace {

constexpr absl::string_view kRate = "actor.vision_lr";

absl::Status CheckRate(const config::v1::RunConfig& config, const model::ModelSpec& spec) {
  const config::v1::ActorConfig& actor = config.actor();
  if (actor.vision_lr() == 0) return absl::OkStatus();
  if (actor.optim().name() == config::v1::OPTIMIZER_NAME_MUON) {
    return absl::UnimplementedError(absl::StrCat(
        kRate, ": muon does not train a vision tower; set it to 0, or actor.optim.name to adamw"));
  }
  if (actor.optim().lr() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kRate,
                     ": expected actor.optim.lr above 0, whose schedule it follows, found 0; "
                     "to train the tower alone, list the other tensors in "
                     "trainer.frozen_parameters"));
  }
  const auto& frozen = config.trainer().frozen_parameters();
  const model::ParameterTable table(
      spec, {.frozen_parameters = {frozen.begin(), frozen.end()}, .trains_vision = true});
  if (table.trains_vision()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(kRate,
                   ": trainer.frozen_parameters names the whole tower; set it to 0, or leave out "
                   "the pattern that matches visual.*"));
}

}  // namespace

bool TrainsVision(const config::v1::RunConfig& config, const model::ModelSpec& spec) {
  return spec.vision.has_value() && config.actor().vision_lr() > 0;
}

absl::Status CheckVision(const config::v1::RunConfig& config, const model::ModelSpec& spec) {
  if (!spec.vision.has_value()) {
    if (config.actor().vision_lr() == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(kRate, ": the model has no vision tower; set it to 0"));
  }
  const auto refuse = [](absl::string_view key, absl::string_view instead) {
    return absl::UnimplementedError(absl::StrCat(
        key, ": does not go together with a model that has a vision tower; ", instead));
  };
  if (config.model().attn_implementation() == config::v1::ATTENTION_IMPLEMENTATION_EAGER) {
    return refuse("model.attn_implementation", "set it to auto");
  }
  if (HasCritic(config)) {
    return refuse(
        "algorithm.adv_estimator",
        "gae trains a critic, which sees no images; use grpo or another without a critic");
  }
  return CheckRate(config, spec);
}

}  // namespace tandem::setup
