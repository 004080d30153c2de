// PreferenceStep: one optimizer step of direct preference optimisation (preference_loss.h).
//
//   PreferenceStep step(MakePreferenceOptions(config), policy, optimizer, mesh);
//   ASSIGN_OR_RETURN(StepResult result, step.Run(batch, reference, learning_rate));
//
// Every rank calls it with the same batch. Threads: the collective thread only. Errors are those of
// FindPreferencePairs, before anything changes, and of the collectives, after which the policy is
// unusable.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_PREFERENCE_STEP_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_PREFERENCE_STEP_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/comm/device_mesh.h"
#include "services/trainer/algorithm/preference_loss.h"
#include "services/trainer/algorithm/training_step.h"
#include "services/trainer/data/micro_batch.h"
#include "services/trainer/data/preference_pairs.h"
#include "services/trainer/data/training_batch.h"
#include "services/trainer/fsdp/sharded_model.h"
#include "services/trainer/optim/optimizer.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::trainer {

struct PreferenceOptions {
  PreferenceLossOptions loss;
  int64_t max_tokens_per_micro_batch = 4096;
};

// Requires a configuration with every value set (config::LoadRunConfig) that CheckAlgorithm()
// accepts.
PreferenceOptions MakePreferenceOptions(const config::v1::RunConfig& config);

class PreferenceStep {
 public:
  // All arguments but `options` outlive it. `mesh` is the policy's.
  PreferenceStep(const PreferenceOptions& options, ShardedModel& policy, Optimizer& optimizer,
                 const comm::DeviceMesh& mesh);

  // Minimizes the mean loss over all pairs of the batch. Metrics have TRL's names:
  // rewards/{chosen,rejected,margins,accuracies}, logps/{chosen,rejected}; and train/loss,
  // actor/{grad_norm,lr}.
  absl::StatusOr<StepResult> Run(TrainingBatch batch, ShardedModel& reference,
                                 double learning_rate);

 private:
  enum Sum { kLoss, kChosen, kRejected, kAccuracy, kChosenLogProb, kRejectedLogProb, kNumSums };

  // This rank's micro-batches; each holds both samples of a pair, the chosen first.
  std::vector<MicroBatch> PackPairs(const TrainingBatch& batch,
                                    const std::vector<PreferencePair>& pairs) const;

  const PreferenceOptions options_;
  ShardedModel& policy_;
  Optimizer& optimizer_;
  const comm::DeviceMesh& mesh_;
  const at::Device device_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_PREFERENCE_STEP_H_
