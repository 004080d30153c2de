// Muon (K. Jordan 2024; at scale: 2502.16982): momentum whose matrices are replaced by the nearest
// semi-orthogonal ones (newton_schulz.h), for hidden matrices; AdamW for embedding, head, norms and
// biases.
//
// A matrix needs all of its elements in one place, while shards cut across matrices. So each unit's
// matrices have owners (common/sharding/matrix_exchange.h): the ranks that share the unit send the
// pieces of the momentum to the owners, which compute the updates and send them back. Replicas of
// the model do the same with the same bits. Expert-parallel ranks hold whole experts, whose owners
// are among the ranks that hold the same ones.
#ifndef TANDEM_SERVICES_TRAINER_OPTIM_MUON_H_
#define TANDEM_SERVICES_TRAINER_OPTIM_MUON_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/hidden_matrices.h"
#include "common/sharding/matrix_exchange.h"
#include "services/trainer/optim/adamw.h"
#include "services/trainer/optim/optimizer.h"

namespace tandem::trainer {

// The factor of a matrix's update.
enum class MuonScale {
  // 0.2 sqrt(max(rows, columns)): the update's root mean square is that of AdamW, so that both take
  // the same learning rates (2502.16982).
  kMatchRmsAdamW,
  kOriginal,  // sqrt(max(1, rows / columns))
};

struct MuonOptions {
  AdamWOptions adamw;   // for the other parameters; grad_clip is for all
  double lr_ratio = 1;  // learning rate of the matrices over that of the others
  double momentum = 0.95;
  bool nesterov = true;
  double weight_decay = 0.1;
  int64_t ns_steps = 5;
  MuonScale scale = MuonScale::kMatchRmsAdamW;
};

// Kind of its state.
inline constexpr char kMomentumBuffer[] = "momentum_buffer";

class Muon : public Optimizer {
 public:
  // Allocates one float32 number for each element of a matrix, two for each other one, in the same
  // memory as the masters. `mesh` is the model's, without tensor parallelism. Throws
  // c10::OutOfMemoryError.
  Muon(const MuonOptions& options, ShardedModel& model, const comm::DeviceMesh& mesh);

  std::vector<ShardState> StateOf(size_t unit) const override;
  std::vector<std::string> KindsOf(const model::Segment& segment, int index) const override;
  std::vector<std::string> AllKinds() const override {
    return {kFirstMoment, kSecondMoment, kMomentumBuffer};
  }

 private:
  // A unit's matrices, and this rank's elements by the formula that updates them.
  struct UnitPlan {
    comm::ProcessGroup* ranks = nullptr;  // that share the unit
    std::vector<model::HiddenMatrix> matrices;
    sharding::MatrixExchange exchange;
    std::vector<model::Range> in_matrices;   // of the rank's shard, in order
    std::vector<model::Range> others;        // of the rank's shard, without padding
    at::Tensor momentum;                     // of in_matrices; undefined if there are none
    at::Tensor first_moment, second_moment;  // of `others`; likewise
  };

  void AllocateState(UnitPlan& plan);
  absl::Status Update(std::vector<UnitShard>& shards, double learning_rate,
                      double clip_factor) override;
  void UpdateOthers(const UnitShard& shard, const UnitPlan& plan, double learning_rate,
                    double clip_factor) const;
  absl::Status UpdateMatrices(const UnitShard& shard, const UnitPlan& plan, double learning_rate,
                              double clip_factor) const;
  // Replaces the pieces in `received` of every matrix that this rank owns by its update.
  void ComputeOwned(const UnitPlan& plan, at::Tensor& received) const;
  double ScaleOf(const model::HiddenMatrix& matrix) const;
  std::vector<at::Tensor> TouchedBy(const UnitShard& shard, const UnitPlan& plan) const;

  const MuonOptions options_;
  std::vector<UnitPlan> plans_;  // of each unit
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_OPTIM_MUON_H_
