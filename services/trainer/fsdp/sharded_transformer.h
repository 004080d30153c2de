// ShardedTransformer: the ShardedModel of a Transformer, stage by stage.
//
// The stages are embed, the blocks, and the head; a training pass runs forward through all of them
// and back through all but the head, whose backward directly follows its forward. Each stage
// detaches the boundary tensor, so that the backward pass is a plain loop over the stages, the same
// on every rank, and no collective depends on the order in which autograd visits a graph.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_SHARDED_TRANSFORMER_H_
#define TANDEM_SERVICES_TRAINER_FSDP_SHARDED_TRANSFORMER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/model/packed_attention.h"
#include "common/model/recomputation.h"
#include "common/model/rotary.h"
#include "services/trainer/fsdp/buffer_pool.h"
#include "services/trainer/fsdp/device_streams.h"
#include "services/trainer/fsdp/gradient_reducer.h"
#include "services/trainer/fsdp/phase_clock.h"
#include "services/trainer/fsdp/sequence_slice.h"
#include "services/trainer/fsdp/sharded_model.h"
#include "services/trainer/fsdp/unit_gatherer.h"

namespace tandem::trainer {

class ShardedTransformer : public ShardedModel {
 public:
  // Throws like StateMemory::Zeros().
  ShardedTransformer(ShardedModelOptions options, std::unique_ptr<DeviceStreams> streams,
                     std::unique_ptr<StateMemory> state_memory);

  const model::Transformer& transformer() const override { return transformer_; }
  at::Device device() const override { return options_.device; }
  absl::Status Load(const io::ModelFolder& folder) override;
  absl::Status RandomInit(uint64_t seed) override;
  absl::StatusOr<model::LogProbs> Forward(const PackedBatch& batch) override;
  absl::StatusOr<double> ForwardBackward(const PackedBatch& batch,
                                         const LossFunction& loss) override;
  absl::StatusOr<at::Tensor> ForwardValues(const PackedBatch& batch) override;
  absl::StatusOr<double> ForwardBackwardValues(const PackedBatch& batch,
                                               const ValueLossFunction& loss) override;
  std::vector<UnitShard>& shards() override { return shards_; }
  absl::Status ReduceGradients() override;
  void ZeroGradients() override;
  void MastersChanged() override;
  void MasterChanged(int unit, int64_t begin, int64_t end) override;
  at::Tensor NewState(int64_t numel) override { return state_memory_->Zeros(numel); }
  int64_t peak_tensor_bytes() const override { return streams_->peak_tensor_bytes(); }
  MemoryBytes memory_bytes() const override;
  int peak_gathered_units() const override { return gatherer_->peak_units(); }
  std::vector<std::pair<std::string, double>> TakePhaseSeconds() override { return clock_.Take(); }

 private:
  // The head's outputs for each row: log-probs and entropies, or values.
  using HeadResults = std::vector<at::Tensor>;
  using HeadLoss = std::function<at::Tensor(const HeadResults&)>;

  // A batch on the device, and the data that its stages share.
  struct Pass {
    bool empty = false;
    at::Tensor token_ids, rows, targets, temperatures;
    model::Rotary rotary;
    SequenceSlice slice;  // the part of the batch that this rank computes
    std::unique_ptr<model::Attention> attention;
    std::unique_ptr<model::Attention> whole_attention;  // `attention` is a rank's part of it
    bool distinct_rows = true;                          // no row predicts for several sequences
    bool all_rows = false;                              // the head sees every token of the slice
    std::string place;                                  // the current stage, for errors
  };
  // A stage's input and output with the graph between them, kept from its forward to its backward.
  struct Boundary {
    at::Tensor input;   // undefined for the embedding
    at::Tensor output;  // undefined until the graph is recomputed
    model::Recomputation recomputation;
  };

  int64_t num_stages() const { return transformer_.spec().num_layers() + 1; }  // without the head
  // Whether the backward pass reaches the stage. Those before the first trainable parameter need
  // neither a graph nor gradients.
  bool HasBackward(int64_t stage) const {
    return stage >= 0 && stage >= transformer_.table().first_trainable_stage();
  }
  bool tied() const { return transformer_.table().lm_head() == transformer_.table().embedding(); }
  // The units that each stage reads, forward and, if `backward`, backward.
  std::vector<std::vector<int>> UnitsOfSteps(bool backward) const;
  // The stage's parameters; those that require grad are leaves of its graph.
  std::vector<at::Tensor> StageLeaves(int stage) const;
  // Passes on the gradients of a stage's trainable parameters, and starts the reduction of units to
  // which no earlier stage adds.
  absl::Status AddGradients(int stage, absl::Span<const at::Tensor> gradients);

  // INVALID_ARGUMENT if the batch's parts do not match.
  absl::Status CheckBatch(const PackedBatch& batch) const;
  Pass MakePass(const PackedBatch& batch) const;
  ActivationCheckpointing CheckpointingOf(int64_t stage) const;
  at::Tensor RunStage(Pass& pass, int64_t stage, const at::Tensor& input,
                      model::Recomputation* recomputation = nullptr) const;
  at::Tensor SelectRows(const Pass& pass, const at::Tensor& x) const;
  HeadResults RunHead(const Pass& pass, const at::Tensor& selected) const;
  // FAILED_PRECONDITION if the model has the other kind of head.
  absl::Status CheckHead(bool value_head) const;

  // Calls `steps` on the batch; `what` describes them in errors. On failure it aborts the group, so
  // that no peer waits forever.
  template <typename Result, typename Steps>
  absl::StatusOr<Result> RunPass(const PackedBatch& batch, const char* what, Steps steps);
  absl::StatusOr<HeadResults> ForwardSteps(Pass& pass);
  absl::StatusOr<double> ForwardBackwardSteps(Pass& pass, const HeadLoss& loss);
  absl::StatusOr<double> TrainHead(const PackedBatch& batch, bool value_head, const HeadLoss& loss);
  // Forward of all stages; fills `boundaries` and returns the residual stream.
  absl::StatusOr<at::Tensor> ForwardStages(Pass& pass, std::vector<Boundary>& boundaries);
  // Head, loss and the head's backward. Returns the gradient of the residual stream.
  absl::StatusOr<at::Tensor> HeadStep(Pass& pass, at::Tensor x, const HeadLoss& loss,
                                      double& loss_value);
  absl::Status BackwardStages(Pass& pass, std::vector<Boundary>& boundaries, at::Tensor gradient);

  const ShardedModelOptions options_;
  const model::Transformer transformer_;
  const std::unique_ptr<DeviceStreams> streams_;
  const std::unique_ptr<StateMemory> state_memory_;
  BufferPool pool_;
  PhaseClock clock_;
  std::vector<UnitShard> shards_;
  // Each unit's shard as the device reads it; the master itself if no copy is needed.
  std::vector<at::Tensor> compute_shards_;
  std::unique_ptr<UnitGatherer> gatherer_;
  std::unique_ptr<GradientReducer> reducer_;  // null if frozen
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_SHARDED_TRANSFORMER_H_
