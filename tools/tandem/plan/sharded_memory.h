// ShardedMemory: simulates the memory of one model over a trainer's ranks: its shards, its units as
// they are gathered and freed, and its gradients in flight. Follows unit_gatherer.cc,
// gradient_reducer.cc, buffer_pool.cc and sharded_transformer.cc of the trainer.
#ifndef TANDEM_TOOLS_TANDEM_PLAN_SHARDED_MEMORY_H_
#define TANDEM_TOOLS_TANDEM_PLAN_SHARDED_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/model/parameter_table.h"
#include "tools/tandem/plan/counted_ops.h"
#include "tools/tandem/plan/layer_memory.h"
#include "tools/tandem/plan/memory_ledger.h"
#include "tools/tandem/plan/rank_memory.h"

namespace tandem::plan {

class ShardedMemory {
 public:
  enum class Role { kPolicy, kReference, kCritic };

  // Takes the sizes that stay for the whole run. The arguments must outlive it.
  ShardedMemory(MemoryLedger& ledger, const model::ModelSpec& spec, const setup::RankSetup& setup,
                const RankWorkload& workload, Role role);

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
  struct Buffer {
    std::pair<int64_t, int64_t> key;  // elements, bytes of one
    Size size;
  };
  struct Unit {
    int64_t numel = 0;  // of the whole unit, TP-local, padded
    int64_t owned = 0;  // of this rank
    Buffer gathered;    // null while not gathered
    Buffer full;        // gradient buffer while a micro-batch fills it
    bool touched = false;
    bool trainable = true;
  };
  struct InFlight {
    int unit = -1;
    std::vector<Buffer> buffers;
  };

  MemoryKind Kind(MemoryKind of_policy) const;
  int64_t rows() const;
  // Bytes of the rows in the float32 that a value head reads.
  int64_t WidenedRowBytes() const;
  int stages() const { return table_.num_stages() - 1; }  // without the head
  int64_t owned() const;
  int64_t trained() const;  // of the owned elements, those that get gradients
  // Bytes of masters, and of shards in compute dtype that are not the masters.
  int64_t shard_bytes() const;
  // Whether the backward pass reaches the stage.
  bool HasBackward(int stage) const { return stage >= table_.first_trainable_stage(); }
  bool Checkpointed(int stage) const;
  int64_t LayBytes(int unit) const;  // of one element

  Buffer Acquire(MemoryKind kind, int64_t numel, int64_t element_bytes);
  void Release(Buffer buffer);

  void Begin(bool backward);
  void Enter(size_t step);
  void End();

  void Lay(int unit);
  void Complete(int unit);
  void Finish();
  // Adds the gradients of a stage's trainable parameters; sends off the units that have this as
  // their first stage.
  void AddGradients(int stage);

  // `layer`: set to the graph of a stage that has one.
  Size RunStage(int stage, const Size& x, LayerMemory::Mode mode,
                std::unique_ptr<LayerMemory>& layer);
  void HeadForward();
  Size HeadForwardBackward(const Size& x);

  MemoryLedger& ledger_;
  const model::ModelSpec spec_;
  const setup::RankSetup& setup_;
  const RankWorkload& workload_;
  const Role role_;
  const model::ParameterTable table_;
  const CountedBatch batch_;
  const int64_t shard_ranks_;
  const bool alone_;         // the shards are the units
  const int64_t vocab_;      // rows of the embedding on this rank
  const int64_t head_rows_;  // rows of the output projection: the vocabulary, or 1 for a critic
  std::vector<Unit> units_;
  std::map<std::pair<int64_t, int64_t>, std::vector<Size>> pool_;
  std::vector<Size> resident_;
  std::vector<std::vector<int>> steps_;
  InFlight in_flight_;
};

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_SHARDED_MEMORY_H_
