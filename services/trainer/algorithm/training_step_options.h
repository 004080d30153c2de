// Options of a training step, from the configuration.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_TRAINING_STEP_OPTIONS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_TRAINING_STEP_OPTIONS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/model/router_losses.h"
#include "services/trainer/algorithm/advantages.h"
#include "services/trainer/algorithm/kl_controller.h"
#include "services/trainer/algorithm/mini_batch.h"
#include "services/trainer/algorithm/policy_objective.h"
#include "services/trainer/algorithm/rollout_correction.h"
#include "services/trainer/algorithm/teacher.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::trainer {

struct TrainingStepOptions {
  AdvantageOptions advantages;
  RolloutCorrectionOptions correction;
  // Completions that ended at the token limit are not trained on; their rewards count.
  bool masks_truncated = false;
  // Share of the tokens, those of the highest entropy, that the policy loss trains on.
  double top_entropy_share = 1.0;
  bool use_kl_in_reward = false;
  KlEstimator kl_penalty = KlEstimator::kK1;
  KlControllerOptions kl_controller;
  PolicyObjectiveOptions objective;
  TeacherOptions teacher;
  MiniBatchOptions mini_batch;
  int64_t epochs = 1;
  // Those of the policy's model, for metrics.
  model::RouterLossFactors router_losses;
  // Step of the routers' correction biases after each update.
  double router_bias_rate = 0;

  bool needs_reference() const { return objective.use_kl_loss || use_kl_in_reward; }
  bool needs_rollout_logprobs() const {
    return correction.bypass || correction.compares() ||
           (teacher.on_policy && teacher.in_advantages);
  }
  bool needs_baseline_reward() const { return advantages.kind->needs_baseline_reward; }
  bool needs_sum_pi_squared() const { return advantages.kind->needs_sum_pi_squared; }
  bool needs_reward_parts() const { return advantages.kind->needs_reward_parts; }
  // Whether the log-probs under the policy at the step's start must be computed before its first
  // update. If not, that update differentiates the start policy itself, whose own log-probs,
  // detached, serve as the old ones.
  bool needs_start_logprobs(int64_t num_groups) const {
    const bool several_updates =
        epochs > 1 || (mini_batch.groups_each > 0 && mini_batch.groups_each < num_groups);
    return correction.compares() || (needs_sum_pi_squared() && !correction.bypass) ||
           objective.policy_loss->select != nullptr ||
           (!correction.bypass && (several_updates || use_kl_in_reward));
  }
};

// UNIMPLEMENTED names the configured estimator or loss if no registry lists it (advantages.cc,
// policy_loss.cc): a name that the schema has and this program does not.
absl::Status CheckAlgorithm(const config::v1::RunConfig& config);

// Requires a valid configuration with every value set (config::LoadRunConfig, CheckAlgorithm).
TrainingStepOptions MakeTrainingStepOptions(const config::v1::RunConfig& config);

model::RouterLossFactors RouterLossesOf(const config::v1::ActorConfig& actor);

LossAggregation AggregationOf(config::v1::LossAggMode mode);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_TRAINING_STEP_OPTIONS_H_
