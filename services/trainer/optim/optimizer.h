// Optimizer: one update of a ShardedModel's masters from its gradients. Clips by the global gradient
// norm, skips a step whose norm is not finite, and leaves the update rule to its subclasses: AdamW
// (adamw.h) and Muon (muon.h). MakeOptimizer() (make_optimizer.h) chooses one.
#ifndef TANDEM_SERVICES_TRAINER_OPTIM_OPTIMIZER_H_
#define TANDEM_SERVICES_TRAINER_OPTIM_OPTIMIZER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/comm/device_mesh.h"
#include "common/model/tensor_parallel.h"
#include "services/trainer/fsdp/phase_clock.h"
#include "services/trainer/fsdp/sharded_model.h"

namespace tandem::trainer {

class Optimizer {
 public:
  struct StepResult {
    double grad_norm = 0;  // global, before clipping
    bool skipped = false;  // the global norm is not finite; no rank changed anything
    std::string cause;     // if skipped: "non-finite gradient in layers.3 (...) on rank 1"
  };

  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Clips, updates masters and state, zeroes gradients, and calls the model's MasterChanged().
  // Collective. An error of a collective leaves the group broken, and the step perhaps half taken.
  absl::StatusOr<StepResult> Step(double learning_rate);

  // Seconds since the last call, by phase: norm_wait, optimizer.
  std::vector<std::pair<std::string, double>> TakePhaseSeconds() { return clock_.Take(); }

  // A tensor of checkpointed state: one float32 value for each of some elements of a shard.
  struct ShardState {
    const char* kind;                    // "exp_avg"
    at::Tensor tensor;                   // [sum of the ranges' sizes]
    std::vector<model::Range> elements;  // of the shard, in order
  };
  // The state of a unit's shard; empty for a frozen unit.
  virtual std::vector<ShardState> StateOf(size_t unit) const = 0;
  // The kinds of state that a trainable tensor has, a segment of parameter `index`, in order.
  virtual std::vector<std::string> KindsOf(const model::Segment& segment, int index) const = 0;
  // Every kind of state that some tensor has.
  virtual std::vector<std::string> AllKinds() const = 0;

  int64_t num_steps() const { return num_steps_; }
  void set_num_steps(int64_t steps) { num_steps_ = steps; }
  // Restores the state before the first step.
  void Reset();

  // Bytes of the state.
  int64_t state_bytes() const;

 protected:
  // `mesh` is the model's. grad_clip 0: no clipping.
  Optimizer(double grad_clip, ShardedModel& model, const comm::DeviceMesh& mesh);

  // Applies the update rule to every trained unit. Gradients are multiplied by `clip_factor`;
  // num_steps() includes this step.
  virtual absl::Status Update(std::vector<UnitShard>& shards, double learning_rate,
                              double clip_factor) = 0;

  // Units with a gradient, in order.
  const std::vector<size_t>& trained_units() const { return trained_units_; }
  ShardedModel& model() const { return model_; }
  const comm::DeviceMesh& mesh() const { return mesh_; }

 private:
  // Factor of torch.nn.utils.clip_grad_norm_.
  double ClipFactor(double grad_norm) const;

  // The parts of a shard's gradient whose squares this rank adds to the norm.
  struct Counted {
    int64_t begin;
    int64_t count;
  };
  std::vector<Counted> CountedParts(const UnitShard& shard, const model::Unit& unit) const;
  // Sum of squares of each unit's gradient: float64 [units], on the gradients' device.
  at::Tensor SumsOfSquares(const std::vector<UnitShard>& shards) const;

  const double grad_clip_;
  ShardedModel& model_;
  const comm::DeviceMesh& mesh_;
  std::vector<size_t> trained_units_;
  int64_t num_steps_ = 0;
  PhaseClock clock_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_OPTIM_OPTIMIZER_H_
