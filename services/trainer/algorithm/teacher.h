// Distillation (section `teacher`): what a policy learns from the log-probs of another model.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_TEACHER_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_TEACHER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "services/trainer/algorithm/update_statistics.h"
#include "services/trainer/data/training_batch.h"

namespace tandem::trainer {

struct TeacherOptions {
  bool on_policy = false;     // the policy learns from log-probs of the tokens that it sampled
  bool in_advantages = true;  // and not in the loss
  double coef = 1.0;
  double reward_coef = 0.0;  // of advantages that come from rewards
  int64_t top_k = 0;  // likeliest tokens that are learnt, in supervised training or on-policy
};

// Replaces each token's advantage A by
//   reward_coef A + coef (log p_teacher - log p_rollout),
// without the second term unless options.in_advantages. It is on-policy distillation as Thinking
// Machines describes it (https://thinkingmachines.ai/blog/on-policy-distillation) and their cookbook
// computes it: the policy gradient of the reverse KL, each token for itself, with the log-probs of the
// policy that sampled; slime's use_opd, and verl's loss_mode k1 with use_policy_gradient. Added after
// an estimator has normalised. Needs teacher_logprobs, and for the second term rollout_logprobs.
void AddTeacherAdvantages(TrainingBatch& batch, const TeacherOptions& options);

// Adds actor/teacher_kl, the mean over the trained-on tokens of log p_rollout - log p_teacher: an
// estimate of the reverse KL per token. Adds nothing if the rollout stated no log-probs.
void AddTeacherKl(const TrainingBatch& batch, Metrics& metrics);

// The parts of the forward KL that do not depend on the policy, summed with a loss's weights.
struct TeacherSums {
  double entropy = 0;  // sum of p_k log p_k
  double mass = 0;     // sum of p_k
};
// top_probs: float [num_rows, K], the teacher's; weights: float [num_rows], on the CPU.
TeacherSums SumTeacher(const at::Tensor& top_probs, const at::Tensor& weights);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_TEACHER_H_
