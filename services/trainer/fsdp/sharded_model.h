// ShardedModel: a model whose parameters and gradients are sharded over the ranks of a mesh.
//
// Each unit of the parameter table is a flat buffer, padded at its end so that every rank of the
// mesh's shard dimension owns exactly 1/ranks of it; the replicate dimension holds copies, whose
// gradients are added up. The owned shards are float32 masters; those of a unit of frozen
// parameters exist in compute dtype only and have no gradients. A unit is gathered in compute dtype
// just before its stage runs (the next ones are prefetched), freed after, and gathered again for
// the backward pass; its gradients are reduce-scattered into float32 shards. No rank ever holds the
// whole model. Along the tensor dimension each rank has its part of every matrix
// (common/model/tensor_parallel.h), and its units and shards cover that part; ranks of a sequence
// group compute the same micro-batch, each a slice of the tokens (sequence_slice.h).
//
//   ASSIGN_OR_RETURN(auto model, ShardedModel::Create(options));
//   RETURN_IF_ERROR(model->Load(folder));
//   for (const PackedBatch& batch : micro_batches) {    // the same number on every rank
//     ASSIGN_OR_RETURN(double value, model->ForwardBackward(batch, loss));
//   }
//   ASSIGN_OR_RETURN(Optimizer::StepResult result, optimizer.Step(lr));    // clips, updates, zeroes
//
// Threads: the rank's collective thread calls every method, in the same order on every rank; a
// batch without tokens still takes part in the collectives. A failed collective leaves the model
// unusable (the group is broken); the process reports and exits.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_SHARDED_MODEL_H_
#define TANDEM_SERVICES_TRAINER_FSDP_SHARDED_MODEL_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/comm/device_mesh.h"
#include "common/device/device.h"
#include "common/io/model_folder.h"
#include "common/model/router_losses.h"
#include "common/model/transformer.h"
#include "services/trainer/data/packed_batch.h"
#include "services/trainer/fsdp/state_memory.h"
#include "services/trainer/fsdp/unit_shard.h"

namespace tandem::trainer {

// The results of a block's forward pass that it keeps for its backward pass. Gradients are
// bit-identical in all modes.
enum class ActivationCheckpointing {
  kNone,       // all of it
  kSelective,  // outputs of matrix products and of attention; the rest is cheap to recompute
  kFull,       // its input
};

struct ShardedModelOptions {
  model::ModelSpec spec;
  at::ScalarType compute_dtype = at::kFloat;  // kFloat or kBFloat16
  const comm::DeviceMesh* mesh = nullptr;     // outlives the model
  at::Device device = at::kCPU;               // where shards and activations live; the mesh's
  model::UnitLimits unit_limits;
  int64_t prefetch_units = 1;
  bool reshard_after_forward = true;
  // kBFloat16 rounds gradients before they travel; sums are in float32 in any case.
  at::ScalarType reduce_dtype = at::kFloat;
  ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::kNone;
  // Applies activation_checkpointing to blocks 0, n, 2n, ...; the others keep everything.
  int64_t activation_checkpointing_interval = 1;
  bool eager_attention = false;
  // A frozen model (the reference) has no gradients. To freeze some parameters only, see
  // unit_limits.frozen_parameters.
  bool trainable = true;
  // Seed of a value head that the folder does not have.
  uint64_t value_head_seed = 0;
  // Whether CPU shards keep their digests (shard_digests.h). Set it for a published model.
  bool keeps_digests = false;
  // Adds the losses of the model's routers to the loss of ForwardBackward(). All layers of experts
  // have equally many.
  model::RouterLossFactors router_losses;
  // Routes tokens as PackedBatch::routed_experts says, where it does; otherwise that is not read.
  bool replays_routing = false;
  // Memory for the shards; on a CPU also for those in compute dtype. `offload_folder` is for kDisk.
  Offload offload = Offload::kNone;
  std::string offload_folder;
};

// A rank's bytes, by purpose.
struct MemoryBytes {
  int64_t parameters = 0;  // masters, and their compute-dtype shards if that dtype differs
  int64_t gradients = 0;   // shards; none for frozen units
  int64_t buffers = 0;     // gathered units and gradients in transit, peak
  int64_t offloaded = 0;   // of parameters and gradients (and the optimizer's), in host memory or
                           // files
};

// What the vision tower did on one rank.
struct EncodedImages {
  int64_t num_images = 0;  // an image counts once in each pass that shows it
  int64_t num_patches = 0;
  double seconds = 0;  // of the forward passes
};

class ShardedModel {
 public:
  // Maps the head's outputs for a batch's rows to a scalar loss, already divided by global counts:
  // gradients are summed over micro-batches and ranks, never averaged. The tensors require grad. With
  // PackedBatch::soft_targets_only, `soft` alone is defined.
  using LossFunction = std::function<at::Tensor(const model::LogProbs&)>;
  // The same for a value model, whose head returns one scalar per row, float32 [num_rows].
  using ValueLossFunction = std::function<at::Tensor(const at::Tensor& values)>;

  static absl::StatusOr<std::unique_ptr<ShardedModel>> Create(ShardedModelOptions options);
  virtual ~ShardedModel() = default;

  virtual const model::Transformer& transformer() const = 0;
  // The device that computes, and on which its group moves tensors.
  virtual at::Device device() const = 0;

  // Reads this rank's part of every tensor. Draws a value head that the folder does not have with
  // options.value_head_seed. Errors are those of model::LoadParameters; nothing is changed then.
  virtual absl::Status Load(const io::ModelFolder& folder) = 0;
  // Draws random parameters; the same values for any number of ranks.
  virtual absl::Status RandomInit(uint64_t seed) = 0;

  // Log-probs and entropies of the batch's rows; no graph.
  virtual absl::StatusOr<model::LogProbs> Forward(const PackedBatch& batch) = 0;
  // The same, with LogProbs::sum_pi_squared.
  virtual absl::StatusOr<model::LogProbs> ForwardWithSquares(const PackedBatch& batch) = 0;

  // Runs forward, loss and backward, and adds to the gradient shards. Returns the loss of the
  // batch's rows, the same on every rank of a tensor or sequence group (0 for an empty batch, for
  // which `loss` is not called).
  absl::StatusOr<double> ForwardBackward(const PackedBatch& batch, const LossFunction& loss) {
    return ValueOf(QueueForwardBackward(batch, loss));
  }
  // The same without a wait for the device: the loss stays there, a scalar, undefined for an empty
  // batch.
  virtual absl::StatusOr<at::Tensor> QueueForwardBackward(const PackedBatch& batch,
                                                          const LossFunction& loss) = 0;

  // Forward and ForwardBackward for a model whose spec has a value head. These return
  // FAILED_PRECONDITION on other models; the ones above do so on this one.
  virtual absl::StatusOr<at::Tensor> ForwardValues(const PackedBatch& batch) = 0;
  absl::StatusOr<double> ForwardBackwardValues(const PackedBatch& batch,
                                               const ValueLossFunction& loss) {
    return ValueOf(QueueForwardBackwardValues(batch, loss));
  }
  virtual absl::StatusOr<at::Tensor> QueueForwardBackwardValues(const PackedBatch& batch,
                                                                const ValueLossFunction& loss) = 0;

  // In order of the table's units.
  virtual std::vector<UnitShard>& shards() = 0;
  // Completes the gradients: adds up those of all copies of the model, and zeroes those of units
  // that no ForwardBackward reached since ZeroGradients(). Collective; call once before the
  // optimizer reads them.
  virtual absl::Status ReduceGradients() = 0;
  // The next ForwardBackward starts a new sum. Costs nothing: it overwrites the old sums.
  virtual void ZeroGradients() = 0;

  // Call after the masters, or elements [begin, end) of one unit's, have changed: updates what is
  // derived from them (the shards in compute dtype, their digests). Call MasterChanged() once per
  // range, in ascending order, until the whole unit is covered.
  virtual void MastersChanged() = 0;
  virtual void MasterChanged(int unit, int64_t begin, int64_t end) = 0;

  // For the optimizer: float32 zeros [numel], in the same memory as the masters. Throws
  // c10::OutOfMemoryError.
  virtual at::Tensor NewState(int64_t numel) = 0;

  // Peak sum of bytes of tensors in this process: shards, gradients, gathered units and
  // activations, counted at the allocator.
  virtual int64_t peak_tensor_bytes() const = 0;
  virtual MemoryBytes memory_bytes() const = 0;
  // Peak number of units gathered, or being gathered, at once.
  virtual int peak_gathered_units() const = 0;
  // For clocks of the device's work; null where compute is synchronous.
  virtual device::Device* compute_device() { return nullptr; }
  // Seconds since the last call, by phase: all_gather_wait, reduce_scatter_wait, forward, backward,
  // head.
  virtual std::vector<std::pair<std::string, double>> TakePhaseSeconds() = 0;
  // For each layer, the rows that each of its experts computed on this rank in the forward passes of
  // ForwardBackward() since the last call; full activation checkpointing counts them twice.
  virtual std::vector<std::vector<int64_t>> TakeExpertRows() { return {}; }
  // The images that the vision tower encoded on this rank since the last call.
  virtual EncodedImages TakeEncodedImages() { return {}; }
  // The routers' losses in the ForwardBackward() calls since the last call, without their factors, of
  // all ranks; zeros without options.router_losses. Each batch counts by its share of
  // PackedBatch::update_tokens.
  virtual model::RouterLosses::Values TakeRouterLosses() { return {}; }
  // Moves the correction biases of routers, if unit_limits.moves_correction_biases: each by `rate` up
  // if its expert had less than the mean of the layer's load in the ForwardBackward() calls since the
  // last call, on all ranks, and down if it had more (2408.15664). A token of a shared prefix counts
  // as often as it is used. A rate of 0 forgets the load. Collective.
  virtual absl::Status MoveCorrectionBiases(double rate) { return absl::OkStatus(); }

 private:
  // Waits for it. INTERNAL if the device has failed.
  static absl::StatusOr<double> ValueOf(absl::StatusOr<at::Tensor> loss);
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_SHARDED_MODEL_H_
