// Scheduler: which tokens of which sequences the next step computes.
//
//   Scheduler scheduler({.max_num_seqs = 256, .max_num_batched_tokens = 4096}, blocks);
//   scheduler.Add(sequence);
//   StepPlan plan = scheduler.Plan();
//   ... run, sample ...
//   scheduler.Complete(plan);
#ifndef TANDEM_SERVICES_ROLLOUT_SCHEDULER_SCHEDULER_H_
#define TANDEM_SERVICES_ROLLOUT_SCHEDULER_SCHEDULER_H_

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "services/rollout/kv_cache/block_manager.h"
#include "services/rollout/scheduler/sequence.h"

namespace tandem::rollout {

struct SchedulerOptions {
  int64_t max_num_seqs = 256;             // sequences that decode together
  int64_t max_num_batched_tokens = 4096;  // tokens of one step
};

struct PlannedSequence {
  Sequence* sequence = nullptr;
  int64_t num_tokens = 0;  // from sequence->num_computed on

  // The step computes the last token, so the next one can be sampled.
  bool reaches_end() const { return num_tokens == sequence->num_pending(); }
};

struct StepPlan {
  std::vector<PlannedSequence> sequences;
  std::vector<std::pair<int32_t, int32_t>>
      block_copies;  // from, to; before the step, in this order
  int64_t num_tokens = 0;
};

struct SchedulerStats {
  int64_t num_preemptions = 0;
  int64_t num_prefilled_tokens = 0;  // computed, prompts and recomputations
  int64_t num_cached_tokens = 0;     // found in the cache instead
};

// Sequences wait in the order of their arrival, then run until they are removed. A step first
// serves those that decode, then prompts under way, then admits from the head of the queue, within
// the token budget; a prompt that does not fit is computed in chunks. A group is admitted when all
// its samples have room. When blocks run out, the latest arrival gives its own back and waits; it
// is computed again later. As long as each sequence alone fits the cache, the first one always
// advances.
//
// Sequences are the caller's and outlive their stay. Owned by the engine thread.
class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, BlockManager& blocks)
      : options_(options), blocks_(blocks) {}

  void Add(Sequence* sequence) { waiting_.insert(sequence); }

  // Empty where nothing can run.
  StepPlan Plan();

  // The step has been computed: counts its tokens and publishes blocks that it filled. Before
  // tokens are appended or sequences are removed.
  void Complete(const StepPlan& plan);

  // `copy`, an equal sequence that holds no blocks yet, shares the blocks of `of` and runs.
  void Fork(const Sequence& of, Sequence* copy);

  // Frees its blocks at once. Harmless for one that is not there.
  void Remove(Sequence* sequence);

  // Every running sequence gives its blocks back and waits; returns how many.
  int64_t RecomputeAll();

  const SequenceQueue& running() const { return running_; }
  const SequenceQueue& waiting() const { return waiting_; }
  const SchedulerStats& stats() const { return stats_; }

 private:
  void PlanRunning(bool decodes, StepPlan& plan);
  void Admit(StepPlan& plan);
  // Plans as many pending tokens as the budget allows. False where the sequence had to give way.
  bool PlanOne(Sequence* sequence, StepPlan& plan);
  // Blocks for `num_tokens` more tokens, preempting later arrivals. False where `sequence` itself
  // was preempted.
  bool Reserve(Sequence* sequence, int64_t num_tokens, StepPlan& plan);
  std::optional<int32_t> AllocateFor(const Sequence* sequence, StepPlan& plan);
  void Preempt(Sequence* sequence, StepPlan& plan);
  void ReleaseBlocks(Sequence* sequence);
  std::optional<BlockHash> NextBlockHash(const Sequence& sequence) const;
  int64_t NumSlots() const;

  const SchedulerOptions options_;
  BlockManager& blocks_;
  SequenceQueue waiting_;
  SequenceQueue running_;
  // Blocks that this step fills first: another sequence that wants the same waits a step and
  // shares.
  std::set<BlockHash> being_filled_;
  SchedulerStats stats_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SCHEDULER_SCHEDULER_H_
