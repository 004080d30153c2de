// Critic: the value model's part of a training step. It predicts the values from which advantages
// are computed (gae_advantages.cc), and learns the returns.
//
//   Critic critic(MakeCriticOptions(config), model, optimizer, mesh);
//   RETURN_IF_ERROR(critic.Score(batch, metrics));           // values
//   AssignAdvantages(batch, {.kind = &kGaeAdvantages});      // advantages and returns
//   RETURN_IF_ERROR(critic.Update(batch, learning_rate, metrics, skipped));
//
// Every rank calls it with the same batch. Threads: the collective thread only. Errors are those of
// the collectives, after which the model is unusable.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_CRITIC_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_CRITIC_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/comm/device_mesh.h"
#include "services/trainer/algorithm/mini_batch.h"
#include "services/trainer/algorithm/update_statistics.h"
#include "services/trainer/data/training_batch.h"
#include "services/trainer/fsdp/sharded_model.h"
#include "services/trainer/optim/optimizer.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::trainer {

struct CriticOptions {
  double cliprange_value = 0.5;
  MiniBatchOptions mini_batch;
  int64_t epochs = 1;
};

// Requires a configuration with every value set (config::LoadRunConfig).
CriticOptions MakeCriticOptions(const config::v1::RunConfig& config);

class Critic {
 public:
  // Model, optimizer and mesh outlive it. The model has a value head; `mesh` is the model's.
  Critic(const CriticOptions& options, ShardedModel& model, Optimizer& optimizer,
         const comm::DeviceMesh& mesh);

  // Sets Sequence::values on every rank. Adds timing_s/values.
  absl::Status Score(TrainingBatch& batch, Metrics& metrics);

  // Runs epochs over mini-batches of groups, with an optimizer step each. Needs values and returns.
  // Adds critic/{vf_loss,vf_clipfrac,vpred_mean,grad_norm,lr,skipped_updates},
  // critic/{values,returns}/{mean,max,min}, critic/vf_explained_var and timing_s/update_critic.
  // Appends the causes of skipped updates to `skipped` (StepResult::skipped).
  absl::Status Update(const TrainingBatch& batch, double learning_rate, Metrics& metrics,
                      std::vector<std::string>& skipped);

 private:
  CriticOptions options_;
  ShardedModel& model_;
  Optimizer& optimizer_;
  const comm::DeviceMesh& mesh_;
  const at::Device device_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_CRITIC_H_
