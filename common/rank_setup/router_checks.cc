#include "common/rank_setup/router_checks.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/config/summary.h"
#include "common/model/parameter_table.h"
#include "common/model/routed_experts.h"

namespace tandem::setup {
namespace {

constexpr absl::string_view kBalance = "actor.router_aux_loss_coef";
constexpr absl::string_view kZ = "actor.router_z_loss_coef";
constexpr absl::string_view kReplay = "actor.router_replay";
constexpr absl::string_view kBiasRate = "actor.router_bias_update_rate";

bool Replays(const config::v1::ActorConfig& actor) {
  return actor.router_replay() == config::v1::ROUTER_REPLAY_R3;
}

// The keys that are set, and how they are unset.
std::vector<std::pair<absl::string_view, absl::string_view>> SetKeys(
    const config::v1::ActorConfig& actor) {
  std::vector<std::pair<absl::string_view, absl::string_view>> out;
  if (actor.router_aux_loss_coef() != 0) out.emplace_back(kBalance, "0");
  if (actor.router_z_loss_coef() != 0) out.emplace_back(kZ, "0");
  if (Replays(actor)) out.emplace_back(kReplay, "disabled");
  if (actor.router_bias_update_rate() != 0) out.emplace_back(kBiasRate, "0");
  return out;
}

// Whether trainer.frozen_parameters leaves a correction bias.
bool MovesAny(const config::v1::RunConfig& config, const model::ModelSpec& spec) {
  const auto& frozen = config.trainer().frozen_parameters();
  const model::ParameterTable table(
      spec, {.frozen_parameters = {frozen.begin(), frozen.end()}, .moves_correction_biases = true});
  return std::any_of(table.parameters().begin(), table.parameters().end(),
                     [](const model::Parameter& parameter) { return parameter.moved; });
}

}  // namespace

absl::Status CheckRouters(const config::v1::RunConfig& config, const model::ModelSpec& spec) {
  int64_t num_experts = 0;
  int64_t other = 0;
  bool corrects = false;
  for (const model::LayerSpec& layer : spec.layers) {
    if (!layer.experts.has_value()) continue;
    corrects = corrects || layer.experts->routing.correction_bias;
    if (num_experts == 0) num_experts = layer.experts->num_experts;
    if (num_experts != layer.experts->num_experts) other = layer.experts->num_experts;
  }
  for (const auto& [key, off] : SetKeys(config.actor())) {
    if (num_experts == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, ": the model has no layer with experts; set it to ", off));
    }
    if (key == kReplay) {
      const absl::StatusOr<model::RoutedLayout> layout = model::RoutedLayout::Of(spec);
      const absl::Status travels = layout.ok()
                                       ? layout->CheckLength(config.data().max_prompt_length() +
                                                             config::LongestCompletion(config))
                                       : layout.status();
      if (!travels.ok()) {
        return absl::InvalidArgumentError(absl::StrCat(key, ": ", travels.message()));
      }
    }
    if (key == kBiasRate && !corrects) {
      return absl::InvalidArgumentError(absl::StrCat(
          key,
          ": the model's routers have no correction bias (e_score_correction_bias); set it to ",
          off, ", or balance the load with ", kBalance));
    }
    if (key == kBiasRate && !MovesAny(config, spec)) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, ": trainer.frozen_parameters names all correction biases; set it to ",
                       off, ", or leave out the pattern that matches e_score_correction_bias"));
    }
    if ((key == kBalance || key == kZ) && other != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, ": expected as many experts in all layers, found ", num_experts,
                       " and ", other, "; set it to ", off));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRoutersOf(absl::string_view command, const config::v1::ActorConfig& actor) {
  for (const auto& [key, off] : SetKeys(actor)) {
    if (command == "dpo") {
      return absl::InvalidArgumentError(
          absl::StrCat(key, ": has no effect in tandem dpo; set it to ", off));
    }
    if (command == "sft" && key == kReplay) {
      return absl::InvalidArgumentError(absl::StrCat(
          key, ": given rows have no rollout's routing; set it to ", off, " in tandem sft"));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::setup
