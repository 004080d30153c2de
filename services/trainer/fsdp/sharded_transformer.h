// ShardedTransformer: the ShardedModel of a Transformer, stage by stage.
//
// The order of a pass is that of common/sharding/training_pass.h; PassOps are its operations on
// tensors. A new stage or collective belongs there, so that the memory plan counts it too.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_SHARDED_TRANSFORMER_H_
#define TANDEM_SERVICES_TRAINER_FSDP_SHARDED_TRANSFORMER_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/device/device.h"
#include "common/device/side_stream.h"
#include "common/model/packed_attention.h"
#include "common/model/recomputation.h"
#include "common/model/rotary.h"
#include "common/model/vision_tower.h"
#include "common/sharding/pass_stages.h"
#include "common/sharding/training_pass.h"
#include "services/trainer/fsdp/buffer_pool.h"
#include "services/trainer/fsdp/gradient_reducer.h"
#include "services/trainer/fsdp/phase_clock.h"
#include "services/trainer/fsdp/sequence_slice.h"
#include "services/trainer/fsdp/sharded_model.h"
#include "services/trainer/fsdp/unit_gatherer.h"

namespace tandem::trainer {

class ShardedTransformer : public ShardedModel {
 public:
  // Throws like StateMemory::Zeros().
  ShardedTransformer(ShardedModelOptions options, std::shared_ptr<device::Device> device,
                     std::unique_ptr<StateMemory> state_memory);

  const model::Transformer& transformer() const override { return transformer_; }
  at::Device device() const override { return options_.device; }
  absl::Status Load(const io::ModelFolder& folder) override;
  absl::Status RandomInit(uint64_t seed) override;
  absl::StatusOr<model::LogProbs> Forward(const PackedBatch& batch) override;
  absl::StatusOr<model::LogProbs> ForwardWithSquares(const PackedBatch& batch) override;
  absl::StatusOr<at::Tensor> QueueForwardBackward(const PackedBatch& batch,
                                                  const LossFunction& loss) override;
  absl::StatusOr<at::Tensor> ForwardValues(const PackedBatch& batch) override;
  absl::StatusOr<at::Tensor> QueueForwardBackwardValues(const PackedBatch& batch,
                                                        const ValueLossFunction& loss) override;
  std::vector<UnitShard>& shards() override { return shards_; }
  absl::Status ReduceGradients() override;
  void ZeroGradients() override;
  void MastersChanged() override;
  void MasterChanged(int unit, int64_t begin, int64_t end) override;
  at::Tensor NewState(int64_t numel) override { return state_memory_->Zeros(numel); }
  int64_t peak_tensor_bytes() const override;
  MemoryBytes memory_bytes() const override;
  device::Device* compute_device() override { return device_.get(); }
  int peak_gathered_units() const override { return gatherer_->peak_units(); }
  std::vector<std::pair<std::string, double>> TakePhaseSeconds() override { return clock_.Take(); }
  std::vector<std::vector<int64_t>> TakeExpertRows() override;
  EncodedImages TakeEncodedImages() override;
  model::RouterLosses::Values TakeRouterLosses() override;
  absl::Status MoveCorrectionBiases(double rate) override;

 private:
  // The head's outputs for each row: log-probs and entropies, with sums of squared probabilities
  // if Pass::sums_squares, or with log-probs of soft targets; these alone; or values.
  using HeadResults = std::vector<at::Tensor>;
  using HeadLoss = std::function<at::Tensor(const HeadResults&)>;

  // A batch on the device, and the data that its stages share.
  struct Pass {
    bool empty = false;         // no stage is computed
    bool without_rows = false;  // the head is not computed
    at::Tensor token_ids, positions, rows, targets, temperatures;
    at::Tensor soft_ids, soft_weights;  // undefined: there are only `targets`
    bool soft_targets_only = false;
    // Tokens that images replace, the rows of the images that do, and their patches; undefined and
    // empty without images.
    at::Tensor image_tokens, image_rows;
    model::ImagePatches images;
    model::Rotary rotary;
    SequenceSlice slice;  // the part of the batch that this rank computes
    std::unique_ptr<model::Attention> attention;
    std::unique_ptr<model::Attention> whole_attention;  // `attention` is a rank's part of it
    bool distinct_rows = true;                          // no row predicts for several sequences
    bool sums_squares = false;                          // of the head's probabilities, too
    bool all_rows = false;                              // the head sees every token of the slice
    at::Tensor token_uses;  // of the slice's tokens; undefined unless choices are counted
    double update_tokens = 0;
    std::unique_ptr<model::ExpertReplay> replay;  // null: the routers choose
    std::string place;                            // the current stage, for errors
  };
  // The operations of sharding::ForwardPass() and TrainingPass() on tensors.
  class PassOps {
   public:
    using Tensor = at::Tensor;
    using Graph = model::Recomputation;
    using Boundary = sharding::StageBoundary<PassOps>;
    using Inputs = sharding::StageInputs<at::Tensor>;
    using Outputs = sharding::StageOutputs<at::Tensor>;

    // `loss`: null for a pass without gradients.
    PassOps(ShardedTransformer& model, Pass& pass, const HeadLoss* loss)
        : model_(model), pass_(pass), loss_(loss) {}

    bool empty() const { return pass_.empty; }
    static bool IsDefined(const at::Tensor& tensor) { return tensor.defined(); }
    absl::Status EnterForward(int stage);
    absl::Status EnterBackward(int stage);
    PhaseClock::Scope TimeForward(int stage);
    PhaseClock::Scope TimeBackward(int stage);
    at::Tensor RunStage(int stage, const Inputs& inputs, sharding::Saves saves, Graph& graph,
                        std::vector<at::Tensor>& made);
    static at::Tensor Detach(const at::Tensor& x, bool needs_gradient);
    static at::Tensor Add(int carried, const at::Tensor& sum, const at::Tensor& gradient);
    absl::StatusOr<at::Tensor> Head(at::Tensor x);
    Inputs Backward(int stage, Boundary& boundary, const Outputs& output_gradients,
                    std::vector<at::Tensor>& gradients);
    absl::Status AddGradients(int stage, absl::Span<const at::Tensor> gradients);
    absl::Status FinishGradients();

    // Undefined for an empty batch.
    const at::Tensor& loss_value() const { return loss_value_; }

   private:
    ShardedTransformer& model_;
    Pass& pass_;
    // Whether the pass trains on its tokens.
    bool counts_load() const { return loss_ != nullptr && !pass_.without_rows; }

    const HeadLoss* const loss_;
    at::Tensor loss_value_;
  };

  // Stage 0: the embedding of the tokens, and of the images in their places; `carried` receives what later
  // layers read, and what images add behind them.
  at::Tensor Embed(const Pass& pass, model::Transformer::Carried& carried) const;
  // The stage's parameters; those that require grad are leaves of its graph.
  std::vector<at::Tensor> StageLeaves(int stage) const;
  // Passes on the gradients of a stage's trainable parameters, and starts the reduction of units to
  // which no earlier stage adds.
  absl::Status AddGradients(int stage, absl::Span<const at::Tensor> gradients);

  // INVALID_ARGUMENT if the batch's parts do not match.
  absl::Status CheckBatch(const PackedBatch& batch) const;
  Pass MakePass(const PackedBatch& batch) const;
  void FillPass(const PackedBatch& batch, Pass& pass) const;
  void AddImages(BatchImages& images, Pass& pass) const;
  // INVALID_ARGUMENT likewise.
  absl::Status CheckImages(const PackedBatch& batch) const;
  // Adds the oldest `count` encoding times to encoded_images_.
  void MeasureEncodings(size_t count) const;
  at::Tensor SelectRows(const Pass& pass, const at::Tensor& x) const;
  HeadResults RunHead(const Pass& pass, const at::Tensor& selected) const;
  // FAILED_PRECONDITION if the model has the other kind of head.
  absl::Status CheckHead(bool value_head) const;

  // Calls `steps` on the batch; `what` describes them in errors. On failure it aborts the group, so
  // that no peer waits forever.
  template <typename Result, typename Steps>
  absl::StatusOr<Result> RunPass(const PackedBatch& batch, const char* what, Steps steps);
  absl::StatusOr<HeadResults> ForwardSteps(Pass& pass);
  absl::StatusOr<at::Tensor> ForwardBackwardSteps(Pass& pass, const HeadLoss& loss);
  absl::StatusOr<at::Tensor> TrainHead(const PackedBatch& batch, bool value_head,
                                       const HeadLoss& loss);
  // Sums over the ranks that have tokens of their own.
  absl::Status SumOverTokens(at::Tensor& sums, const char* what);
  // Moves the correction bias of the layer's router, if it has one, on the part of it that this rank
  // owns.
  void MoveCorrectionBias(int64_t layer, double rate);
  // Adds up the routers' losses of all ranks.
  absl::Status FinishRouterLosses(const Pass& pass);
  // Head, loss and the head's backward. Returns the gradient of the residual stream.
  absl::StatusOr<at::Tensor> HeadStep(Pass& pass, at::Tensor x, const HeadLoss& loss,
                                      at::Tensor& loss_value);

  const ShardedModelOptions options_;
  const model::Transformer transformer_;
  const sharding::PassStages stages_;
  const std::shared_ptr<device::Device> device_;
  device::SideStream side_;  // of the collectives
  const std::unique_ptr<StateMemory> state_memory_;
  BufferPool pool_;
  PhaseClock clock_;
  mutable EncodedImages encoded_images_;
  // When passes encoded images, on a GPU, where the host only issues the work: begins and ends. Bounded
  // like the clock's.
  mutable std::deque<std::array<std::unique_ptr<device::Event>, 2>> encoding_times_;
  std::optional<model::RoutedLayout> routed_layout_;  // if routing is replayed
  model::ExpertLoad expert_load_;
  std::unique_ptr<model::RouterLosses> router_losses_;  // null without any
  std::unique_ptr<model::ExpertUse> expert_use_;        // null unless biases are moved
  std::vector<UnitShard> shards_;
  // Each unit's shard as the device reads it; the master itself if no copy is needed.
  std::vector<at::Tensor> compute_shards_;
  std::unique_ptr<UnitGatherer> gatherer_;
  std::unique_ptr<GradientReducer> reducer_;  // null if frozen
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_SHARDED_TRANSFORMER_H_
