// AdvantageKind: an advantage estimator, named by algorithm.adv_estimator. Each is one file
// (grpo_advantages.cc, rloo_advantages.cc, ...) and one line in advantages.cc:
//
//   const AdvantageKind* kind = FindAdvantages(config.algorithm().adv_estimator());
//   AssignAdvantages(batch, {.kind = kind, .gamma = 1.0});
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_ADVANTAGES_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_ADVANTAGES_H_

#include <vector>

#include "services/trainer/data/training_batch.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::trainer {

struct AdvantageOptions;

// For each sequence of a batch, one advantage per trained-on token.
using TokenAdvantages = std::vector<std::vector<double>>;

struct AdvantageKind {
  config::v1::AdvEstimator estimator;
  // Reads total_reward() and token_rewards of the sequences; the flags below name further inputs.
  TokenAdvantages (*compute)(TrainingBatch& batch, const AdvantageOptions& options);
  bool compares_samples = false;       // those of one prompt: one alone has nothing to compare with
  bool is_whitened = false;            // whitens over the batch, afterwards (whitening.h)
  bool needs_baseline_reward = false;  // of the greedy completion
  bool needs_reward_parts = false;     // of several rewards
  // old_logprobs and sum_pi_squared, under the policy at the step's start.
  bool needs_sum_pi_squared = false;
};

extern const AdvantageKind kGrpoAdvantages;
extern const AdvantageKind kRlooAdvantages;
extern const AdvantageKind kReinforcePlusPlusAdvantages;
extern const AdvantageKind kReinforcePlusPlusBaselineAdvantages;
extern const AdvantageKind kOpoAdvantages;
extern const AdvantageKind kRemaxAdvantages;
extern const AdvantageKind kGaeAdvantages;
extern const AdvantageKind kPassAtKAdvantages;
extern const AdvantageKind kGdpoAdvantages;
extern const AdvantageKind kOptimalTokenBaselineAdvantages;
extern const AdvantageKind kTirOptimalTokenBaselineAdvantages;
extern const AdvantageKind kGpgAdvantages;

struct AdvantageOptions {
  const AdvantageKind* kind = &kGrpoAdvantages;
  bool divide_by_std = true;  // for grpo, grpo_passk and gdpo
  double gamma = 1.0;         // for reinforce_plus_plus and gae
  double lam = 1.0;           // for gae
};

// Returns null for ADV_ESTIMATOR_UNSPECIFIED, and for a value that advantages.cc does not list.
const AdvantageKind* FindAdvantages(config::v1::AdvEstimator estimator);

// Adds to the last trained-on token the part of the completion's reward that its own token rewards
// do not cover: `token_rewards` then add up to the reward. Call once.
void SpreadRewards(TrainingBatch& batch);

// Computes the advantage of every trained-on token from total_reward() and token_rewards. Call
// SpreadRewards() first. Sequences that came with advantages keep them; their rewards still count
// in their group, but whitening skips them.
void AssignAdvantages(TrainingBatch& batch, const AdvantageOptions& options);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_ADVANTAGES_H_
