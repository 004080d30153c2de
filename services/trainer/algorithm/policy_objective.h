// PolicyObjective: a micro-batch's part of the policy-gradient loss: the policy loss, the
// divergences from the reference and from a teacher, the entropy bonus.
//
//   PolicyObjective objective(options);
//   const auto loss = [&](const model::LogProbs& out) {
//     return objective.Loss(micro_batch, out, place, statistics, later);
//   };
//   RETURN_IF_ERROR(policy.QueueForwardBackward(micro_batch.packed, loss).status());
//   RETURN_IF_ERROR(later.Read());    // after the mini-batch's last
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_POLICY_OBJECTIVE_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_POLICY_OBJECTIVE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "common/model/transformer.h"
#include "services/trainer/algorithm/deferred_values.h"
#include "services/trainer/algorithm/kl_loss.h"
#include "services/trainer/algorithm/mini_batch.h"
#include "services/trainer/algorithm/policy_loss.h"
#include "services/trainer/algorithm/update_statistics.h"

namespace tandem::trainer {

struct PolicyObjectiveOptions {
  const PolicyLossKind* policy_loss = &kVanillaLoss;
  PolicyLossOptions policy;
  bool use_kl_loss = false;
  double kl_loss_coef = 0.001;
  KlEstimator kl_estimator = KlEstimator::kK3;  // of both divergences
  // Factor of the divergence from the teacher (GKD's on-policy half, 2306.13649); 0: none.
  double teacher_loss_coef = 0.0;
  // Multiplies the divergences by pi / pi_old: then its gradient is that of the divergence of the
  // current policy, whichever policy sampled (DeepSeek-V3.2, 2512.02556).
  bool weights_kl = false;
  double entropy_coeff = 0.0;
};

// Position of a micro-batch in a step.
struct MicroBatchPlace {
  int64_t update = 0;       // within the step, from 0
  int64_t micro_batch = 0;  // within the update, from 0
  double num_tokens = 0;    // of the mini-batch, on all ranks
  double num_sequences = 0;
  double share = 1.0;  // weight of the update in the step's reported statistics
  bool compare_with_rollout = false;
};

class PolicyObjective {
 public:
  explicit PolicyObjective(const PolicyObjectiveOptions& options) : options_(options) {}

  // Returns a scalar that is differentiable in `out`. Without old_logprobs, the current policy
  // serves as the old one. later.Read() adds the loss's parts, times the share, to `statistics`, and
  // logs a non-finite loss with the term and the sample; `micro_batch` and `statistics` must live
  // until then. Otherwise pure; any thread.
  at::Tensor Loss(const MicroBatch& micro_batch, const model::LogProbs& out,
                  const MicroBatchPlace& place, UpdateStatistics& statistics,
                  DeferredValues& later) const;

 private:
  const PolicyObjectiveOptions options_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_POLICY_OBJECTIVE_H_
