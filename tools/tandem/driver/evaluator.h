// Evaluation: samples and judges completions of the test prompts; none of them trains.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_EVALUATOR_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_EVALUATOR_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tandem/rollout/v1/sampling.pb.h"
#include "tools/tandem/driver/episodes.h"
#include "tools/tandem/driver/prompt_source.h"
#include "tools/tandem/driver/rewarder.h"
#include "tools/tandem/driver/rollout_fleet.h"

namespace tandem::driver {

// Sampling parameters of a training step.
rollout::v1::SamplingParams TrainSampling(const config::v1::RunConfig& config);
// Sampling parameters of ReMax's baselines: one greedy completion.
rollout::v1::SamplingParams GreedySampling(const config::v1::RunConfig& config);
// Sampling parameters of an evaluation; every evaluation has the same seed.
rollout::v1::SamplingParams EvalSampling(const config::v1::RunConfig& config);

// The metric of an evaluation: the mean of the reward with this label (driver::RewardParts()).
std::string EvaluationMetric(const config::v1::RunConfig& config, const std::string& label);

struct EvalResult {
  double mean_reward = 0;  // mean over samples, then over prompts
  std::vector<Group> groups;
  int64_t num_unjudged = 0;  // groups for which a judge or a reward model failed; they are left out
};

// Evaluates all prompts of `source`, or its first data.test_limit. `while_waiting`: see
// RolloutFleet::GenerateOptions. `episodes` plays them; null: completions of a single turn. The error of
// a judge or a reward model if it fails for every prompt.
absl::StatusOr<EvalResult> Evaluate(const config::v1::RunConfig& config, const PromptSource& source,
                                    RolloutFleet& fleet, Rewarder& rewarder,
                                    std::function<absl::Status()> while_waiting = nullptr,
                                    const Episodes* episodes = nullptr);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_EVALUATOR_H_
