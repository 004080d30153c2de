// ShardedMemory: the memory of one model over a trainer's ranks: its shards, its units as they are
// gathered and freed, and its gradients in flight.
//
// The order of a pass, of gathers and of reductions is the trainer's own (common/sharding); this
// class gives it sizes in place of tensors. It states itself only what stands for the operations
// outside of the layers: the sizes of shards and optimizer state, and those of the head.
#ifndef TANDEM_TOOLS_TANDEM_PLAN_SHARDED_MEMORY_H_
#define TANDEM_TOOLS_TANDEM_PLAN_SHARDED_MEMORY_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/parameter_table.h"
#include "common/sharding/gather_schedule.h"
#include "common/sharding/gradient_reduction.h"
#include "common/sharding/pass_stages.h"
#include "common/sharding/shard_extent.h"
#include "common/sharding/training_pass.h"
#include "tools/tandem/plan/counted_ops.h"
#include "tools/tandem/plan/counted_pool.h"
#include "tools/tandem/plan/layer_profile.h"
#include "tools/tandem/plan/memory_ledger.h"
#include "tools/tandem/plan/rank_memory.h"
#include "tools/tandem/plan/tower_memory.h"

namespace tandem::plan {

class ShardedMemory {
 public:
  enum class Role { kPolicy, kReference, kCritic };

  // Takes the sizes that stay for the whole run. The arguments must outlive it.
  ShardedMemory(MemoryLedger& ledger, const model::ModelSpec& spec, const setup::RankSetup& setup,
                const RankWorkload& workload, Role role);
  ShardedMemory(const ShardedMemory&) = delete;
  ShardedMemory& operator=(const ShardedMemory&) = delete;

  // One micro-batch without a graph.
  void Forward();
  // One micro-batch, forward and backward.
  void ForwardBackward();
  // Clips and updates; gradient sums restart at zero.
  void OptimizerStep();

  // Elements of the largest unit in this rank's part of the model.
  int64_t largest_unit() const;
  // Bytes of masters, gradients, moments and shards in compute dtype, including offloaded ones.
  int64_t state_bytes() const;

 private:
  // The operations of sharding::ForwardPass() and TrainingPass() on sizes.
  class PassOps {
   public:
    using Tensor = Size;
    using Graph = std::unique_ptr<LayerReplay>;  // null for the embedding
    using Boundary = sharding::StageBoundary<PassOps>;
    using Inputs = sharding::StageInputs<Size>;
    using Outputs = sharding::StageOutputs<Size>;

    PassOps(ShardedMemory& memory, bool trains) : memory_(memory), trains_(trains) {}

    static bool empty() { return false; }
    static bool IsDefined(const Size& size) { return size != nullptr; }
    absl::Status EnterForward(int stage);
    absl::Status EnterBackward(int stage);
    static int TimeForward(int /*stage*/) { return 0; }
    static int TimeBackward(int /*stage*/) { return 0; }
    Size RunStage(int stage, const Inputs& inputs, sharding::Saves saves, Graph& graph,
                  std::vector<Size>& made);
    static Size Detach(const Size& x, bool /*needs_gradient*/) { return x; }
    Size Add(int carried, const Size& sum, const Size& gradient);
    absl::StatusOr<Size> Head(Size x) { return memory_.HeadForwardBackward(x); }
    Inputs Backward(int stage, Boundary& boundary, const Outputs& output_gradients,
                    std::vector<Size>& gradients);
    absl::Status AddGradients(int stage, const std::vector<Size>& gradients);
    absl::Status FinishGradients();

   private:
    Size RunEmbedding(sharding::Saves saves, std::vector<Size>& made);
    // The inputs of all layers, parts of one tensor.
    Size MakeLayerInputs(sharding::Saves saves);
    // Frees what that saved, and adds the gradients of its parameters.
    void LayerInputsBackward(std::vector<Size>& gradients);
    // The gradients of those that are trained, together; -1: none.
    Size TakeGradient(std::initializer_list<int> parameters);
    // Of all layers' inputs together.
    int64_t LayerInputBytes() const;
    // The embedding with the rows of images in their places; the embedding itself is the caller's.
    // `made` receives what images add behind layers.
    Size PutImages(sharding::Saves saves, std::vector<Size>& made);
    // Whether images add rows behind the layer of this stage.
    bool AddsImageRows(int stage) const;
    // What they add behind one layer.
    Size TakeImageRows();
    // Frees what PutImages() saved. Returns the gradients of the tower's parameters.
    std::vector<Size> ImagesBackward();

    ShardedMemory& memory_;
    const bool trains_;
    // Kept for the backward pass.
    Size embedding_norm_input_;
    std::vector<Size> layer_inputs_saved_;
    std::unique_ptr<TowerMemory> tower_;
  };

  // The operations of sharding::GradientReduction on sizes.
  class ReductionOps {
   public:
    using Buffer = CountedPool::Buffer;
    using ElementType = int64_t;  // bytes
    using Flight = sharding::GradientFlight<Buffer>;
    static constexpr int64_t kFloat32 = 4;
    static constexpr int64_t kBFloat16 = 2;

    explicit ReductionOps(ShardedMemory& memory) : memory_(memory) {}
    Buffer Acquire(int64_t numel, int64_t element_bytes) {
      return memory_.pool_.Acquire(memory_.Kind(MemoryKind::kGradientBuffers), numel,
                                   element_bytes);
    }
    void Release(Buffer buffer) { memory_.pool_.Release(std::move(buffer)); }
    void Seal(int /*unit*/, Buffer& /*full*/) {}
    void Round(const Buffer& /*from*/, Buffer& /*to*/) {}
    void SortByRankOfHost(int /*unit*/, const Buffer& /*from*/, Buffer& /*to*/) {}
    // Shards offloaded from a GPU cannot be written; the buffer for their sums, one for each size
    // of shard, is not counted.
    bool CanReduceIntoShard(int /*unit*/) const { return true; }
    absl::Status Start(int /*unit*/, sharding::Leg /*leg*/, Flight& /*flight*/) {
      return absl::OkStatus();
    }
    absl::Status Wait(int /*unit*/, sharding::Leg /*leg*/) { return absl::OkStatus(); }
    void AddSlices(int /*unit*/, Flight& /*flight*/) {}
    void AddToShard(int /*unit*/, const Buffer& /*sum*/, bool /*holds_sum*/) {}
    void Arrived(int /*unit*/) {}

   private:
    ShardedMemory& memory_;
  };

  struct Unit {
    sharding::ShardExtent extent;  // of this rank's part of the model
    int num_hosts = 1;             // over which its ranks are spread evenly
    bool trainable = true;
    bool has_master = true;  // a step changes it
    // The shard is the unit, and nothing is gathered. An offloaded shard counts as a gathered unit: it
    // takes memory while it is read.
    bool alone = false;
    CountedPool::Buffer gathered{};  // null while not gathered
  };

  // Images that a micro-batch shows, on this rank: the rows that they become, and the tokens that
  // these replace. A rank that shares its sequences encodes what its part of them shows, at most all
  // of one prompt's beyond its share.
  bool has_images() const { return spec_.vision.has_value() && workload_.image_prompts > 0; }
  int64_t image_rows() const;
  int64_t image_tokens() const;
  // The pixels that a pass holds; null without images.
  Size TakePixels();

  MemoryKind Kind(MemoryKind of_policy) const;
  int64_t rows() const;
  // Bytes of the rows in the float32 that a value head reads.
  int64_t WidenedRowBytes() const;
  int64_t owned() const;
  int64_t trained() const;  // of the owned elements, those that get gradients
  bool has_muon() const;
  // Counts Muon's state (muon.h), on the rank that has most of it, and the largest exchange of a
  // unit's matrices.
  void CountMuon();
  // Bytes of masters, and of shards in compute dtype that are not the masters.
  int64_t shard_bytes() const;
  int64_t masters() const;  // elements that this rank owns of what steps change
  std::vector<sharding::ReducedUnit> ReducedUnits() const;

  void Begin(bool backward);
  void Enter(size_t step);
  void End();

  // Adds the gradients of a stage's trainable parameters; sends off the units that have this as
  // their first stage.
  absl::Status AddGradients(int stage);
  int64_t HeadChunk() const;  // rows of logits that exist at once
  void HeadForward();
  Size HeadForwardBackward(const Size& x);

  MemoryLedger& ledger_;
  const model::ModelSpec spec_;
  const setup::RankSetup& setup_;
  const RankWorkload& workload_;
  const Role role_;
  const model::ParameterTable table_;
  const sharding::PassStages stages_;
  const CountedBatch batch_;
  LayerProfiles layers_;
  const int head_;           // the output projection in table_, or a critic's value head
  const int64_t head_rows_;  // of it, on this rank: the vocabulary, or 1 for a critic
  std::vector<Unit> units_;
  int64_t optimizer_elements_ = 0;       // of its state
  int64_t optimizer_step_elements_ = 0;  // that it allocates during a step
  CountedPool pool_;
  std::vector<Size> resident_;
  sharding::GatherSchedule schedule_;
  ReductionOps reduction_ops_{*this};
  std::unique_ptr<sharding::GradientReduction<ReductionOps>> reduction_;
};

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_SHARDED_MEMORY_H_
