// AdamW with decoupled weight decay (1711.05101) over the shards of a ShardedModel. Clips by the
// global gradient norm. Updates unit by unit, so that at most two units of a disk-offloaded state
// are in memory at a time.
#ifndef TANDEM_SERVICES_TRAINER_OPTIM_ADAMW_H_
#define TANDEM_SERVICES_TRAINER_OPTIM_ADAMW_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/comm/device_mesh.h"
#include "services/trainer/fsdp/phase_clock.h"
#include "services/trainer/fsdp/sharded_model.h"

namespace tandem::trainer {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double grad_clip = 1.0;  // 0: no clipping
};

class AdamW {
 public:
  // Allocates two float32 moments for each trainable shard, in the same memory as the masters.
  // `mesh` is the model's. Throws c10::OutOfMemoryError.
  AdamW(AdamWOptions options, ShardedModel& model, const comm::DeviceMesh& mesh);

  struct StepResult {
    double grad_norm = 0;  // global, before clipping
    bool skipped = false;  // the norm is not finite on some rank; no rank changed anything
    std::string cause;     // if skipped: "non-finite gradient in layers.3 (...) on rank 1"
  };

  // Clips, updates masters and moments, zeroes gradients, and calls the model's MasterChanged().
  // Collective. After an error of the collective this rank has not taken the step.
  absl::StatusOr<StepResult> Step(double learning_rate);

  // Seconds since the last call, by phase: norm_wait, optimizer.
  std::vector<std::pair<std::string, double>> TakePhaseSeconds() { return clock_.Take(); }

  // Checkpoint state: one pair of moments for each shard, undefined for frozen ones, and the number
  // of steps.
  std::vector<at::Tensor>& first_moments() { return first_moments_; }
  std::vector<at::Tensor>& second_moments() { return second_moments_; }
  int64_t num_steps() const { return num_steps_; }
  void set_num_steps(int64_t steps) { num_steps_ = steps; }
  // Restores the state before the first step.
  void Reset();

  // Bytes of the moments.
  int64_t state_bytes() const;

 private:
  // Factor of torch.nn.utils.clip_grad_norm_.
  double ClipFactor(double grad_norm) const;
  void Update(std::vector<UnitShard>& shards, double learning_rate, double clip_factor);
  // The tensors that an update of the unit touches.
  std::vector<at::Tensor> StateOf(const UnitShard& shard, size_t unit) const;

  // The parts of a shard's gradient whose squares this rank adds to the norm.
  struct Counted {
    int64_t begin;
    int64_t count;
  };
  std::vector<Counted> CountedParts(const UnitShard& shard, const model::Unit& unit) const;
  // Sum of squares of each unit's gradient: float64 [units], on the gradients' device.
  at::Tensor SumsOfSquares(const std::vector<UnitShard>& shards) const;

  AdamWOptions options_;
  ShardedModel& model_;
  const comm::DeviceMesh& mesh_;
  std::vector<size_t> trained_units_;  // those with a gradient, in order
  std::vector<at::Tensor> first_moments_;
  std::vector<at::Tensor> second_moments_;
  int64_t num_steps_ = 0;
  PhaseClock clock_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_OPTIM_ADAMW_H_
