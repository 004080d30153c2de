// AdamW with decoupled weight decay (1711.05101) over the shards of a ShardedModel. Updates unit by
// unit, so that at most two units of a disk-offloaded state are in memory at a time.
#ifndef TANDEM_SERVICES_TRAINER_OPTIM_ADAMW_H_
#define TANDEM_SERVICES_TRAINER_OPTIM_ADAMW_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "services/trainer/optim/optimizer.h"

namespace tandem::trainer {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double grad_clip = 1.0;  // 0: no clipping
  // Learning rate of a vision tower over that of the other parameters.
  double vision_lr_ratio = 1.0;
};

// Kinds of its state.
inline constexpr char kFirstMoment[] = "exp_avg";
inline constexpr char kSecondMoment[] = "exp_avg_sq";

class AdamW : public Optimizer {
 public:
  // Allocates two float32 moments for each trainable shard, in the same memory as the masters.
  // `mesh` is the model's. Throws c10::OutOfMemoryError.
  AdamW(AdamWOptions options, ShardedModel& model, const comm::DeviceMesh& mesh);

  std::vector<ShardState> StateOf(size_t unit) const override;
  std::vector<std::string> KindsOf(const model::Segment&, int) const override { return AllKinds(); }
  std::vector<std::string> AllKinds() const override { return {kFirstMoment, kSecondMoment}; }

  // One for each shard, undefined for frozen ones.
  std::vector<at::Tensor>& first_moments() { return first_moments_; }
  std::vector<at::Tensor>& second_moments() { return second_moments_; }

 private:
  absl::Status Update(std::vector<UnitShard>& shards, double learning_rate,
                      double clip_factor) override;
  // The unit's learning rate over that of Step(): a unit is a tower's, or has nothing of it.
  double RateOf(size_t unit) const;
  // The tensors that an update of the unit touches.
  std::vector<at::Tensor> TouchedBy(const UnitShard& shard, size_t unit) const;

  const AdamWOptions options_;
  std::vector<at::Tensor> first_moments_;
  std::vector<at::Tensor> second_moments_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_OPTIM_ADAMW_H_
