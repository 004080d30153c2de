#include "tools/tandem/driver/evaluator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/summary.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/play_groups.h"

namespace tandem::driver {
namespace {

rollout::v1::SamplingParams CommonSampling(const config::v1::RolloutConfig& config) {
  rollout::v1::SamplingParams params;
  params.set_max_tokens(config.max_tokens());
  params.set_processed_logprobs(true);
  *params.mutable_stop() = config.stop();
  for (int64_t id : config.stop_token_ids()) params.add_stop_token_ids(static_cast<uint32_t>(id));
  return params;
}

}  // namespace

rollout::v1::SamplingParams TrainSampling(const config::v1::RunConfig& config) {
  rollout::v1::SamplingParams params = CommonSampling(config.rollout());
  params.set_n(static_cast<int32_t>(config.rollout().n()));
  params.set_temperature(config.rollout().temperature());
  params.set_top_k(config.rollout().top_k());
  params.set_top_p(config.rollout().top_p());
  params.set_min_p(config.rollout().min_p());
  return params;
}

rollout::v1::SamplingParams GreedySampling(const config::v1::RunConfig& config) {
  rollout::v1::SamplingParams params = CommonSampling(config.rollout());
  params.set_n(1);
  params.set_temperature(0);
  return params;
}

rollout::v1::SamplingParams EvalSampling(const config::v1::RunConfig& config) {
  const config::v1::ValKwargs& val = config.rollout().val_kwargs();
  rollout::v1::SamplingParams params = CommonSampling(config.rollout());
  params.set_n(static_cast<int32_t>(val.n()));
  params.set_temperature(val.temperature());
  params.set_top_k(val.top_k());
  params.set_top_p(val.top_p());
  params.set_seed(config.seed() + 0x5EED);
  return params;
}

std::string EvaluationMetric(const config::v1::RunConfig& config, const std::string& label) {
  return absl::StrCat("val-core/", label, "/reward/mean@", config.rollout().val_kwargs().n());
}

absl::StatusOr<EvalResult> Evaluate(const config::v1::RunConfig& config, const PromptSource& source,
                                    RolloutFleet& fleet, Rewarder& rewarder,
                                    std::function<absl::Status()> while_waiting,
                                    const Episodes* episodes) {
  std::vector<Prompt> prompts = source.prompts();
  const int64_t limit = config.data().test_limit();
  if (limit > 0 && limit < static_cast<int64_t>(prompts.size())) prompts.resize(limit);
  EvalResult result;
  const RolloutFleet::GenerateOptions options = {.sampling = EvalSampling(config),
                                                 .while_waiting = std::move(while_waiting)};
  if (episodes != nullptr && config::PlaysEpisodes(config)) {
    ASSIGN_OR_RETURN(result.groups,
                     PlayGroups(std::move(prompts), fleet, options, episodes->factory(&fleet)));
  } else {
    ASSIGN_OR_RETURN(result.groups, fleet.Generate(std::move(prompts), options));
  }
  RETURN_IF_ERROR(rewarder.Judge(result.groups));
  absl::Status unjudged;
  for (const Group& group : result.groups) unjudged.Update(group.judgement);
  result.num_unjudged = static_cast<int64_t>(
      std::erase_if(result.groups, [](const Group& group) { return !group.judgement.ok(); }));
  if (result.groups.empty() && !unjudged.ok()) {
    return StatusBuilder(unjudged) << "no reward for any prompt of the evaluation";
  }
  for (const Group& group : result.groups) result.mean_reward += group.mean_reward();
  result.mean_reward /= static_cast<double>(result.groups.size());
  return result;
}

}  // namespace tandem::driver
