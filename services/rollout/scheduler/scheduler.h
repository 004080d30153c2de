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
#include <functional>
#include <map>
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

// Sequences wait in the order of their priority, clients of equal priority by what was computed for
// them, and those of one client in the order of their arrival; then they run until they are
// removed. A step first serves those that decode, then prompts under way, then admits from the
// queue, within the token budget; a prompt that does not fit is computed in chunks. A group is
// admitted when all its samples have room. When blocks run out, one of the lowest priority gives
// its own back and waits, to be computed again later: of the request that has more than half of all
// that run, else the latest arrival. As long as each sequence alone fits the cache, the first one
// always advances.
//
// No request has everything: while others wait, prompts under way leave them a quarter of the
// tokens of a step, and a request has at most request_share() sequences running; what it has more
// gives way to those that wait.
//
// Sequences are the caller's and outlive their stay. Owned by the engine thread.
class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, BlockManager& blocks)
      : options_(options), blocks_(blocks) {}

  void Add(Sequence* sequence);

  // Empty where nothing can run. Lasts until the next.
  const StepPlan& Plan();

  // The step has been computed: counts its tokens and publishes blocks that it filled. Before
  // tokens are appended or sequences are removed.
  void Complete(const StepPlan& plan);

  // `copy`, an equal sequence that holds no blocks yet, shares the blocks of `of` and runs; or
  // waits where its request may have no more.
  void Fork(const Sequence& of, Sequence* copy);

  // Frees its blocks at once. Harmless for one that is not there.
  void Remove(Sequence* sequence);

  // Every running sequence gives its blocks back and waits; returns how many.
  int64_t RecomputeAll();

  // Sequences of one request that run at once while others wait, at most.
  int64_t request_share() const {
    return options_.max_num_seqs - options_.max_num_seqs / kRoomForOthers;
  }

  const SequenceQueue& running() const { return running_; }
  const SequenceQueue& waiting() const { return waiting_; }
  const SchedulerStats& stats() const { return stats_; }

 private:
  static constexpr int64_t kRoomForOthers = 8;    // a share in it of the sequences
  static constexpr int64_t kTokensForOthers = 4;  // likewise of the tokens that are left to prompts

  // What is there of one client, and the tokens computed for it.
  struct Client {
    int64_t num_sequences = 0;
    int64_t served = 0;
  };
  // The next of each client that waits with one priority.
  struct Turn {
    Client* client;
    const SequenceQueue* queue;
    SequenceQueue::const_iterator next;
  };

  void Wait(Sequence* sequence);
  void Unwait(Sequence* sequence);
  void Enter(const Sequence& sequence);
  // Up to `limit` tokens of the step.
  void PlanRunning(bool decodes, int64_t limit, StepPlan& plan);
  // Of those that wait with one priority. False where the rest must wait too.
  bool AdmitTurns(std::vector<Turn> turns, StepPlan& plan);
  enum class Admission { kAdmitted, kPassedOver, kNoRoom };
  Admission AdmitOne(Sequence* sequence, StepPlan& plan);
  // Sequences of the request that run, and those that a group under way becomes.
  int64_t NumRunning(int64_t arrival) const;
  // And how many may.
  int64_t MaxSequences(int64_t arrival) const;
  // The latest of a request that has more than its share and no higher priority, or null.
  Sequence* OverQuotaSequence(const Sequence& of) const;
  Sequence* PreemptionVictim() const;
  void Admit(StepPlan& plan);
  // Plans as many pending tokens as the limit allows. False where the sequence had to give way.
  bool PlanOne(Sequence* sequence, int64_t limit, StepPlan& plan);
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
  // The same by priority and client.
  std::map<int32_t, std::map<uint64_t, SequenceQueue>, std::greater<>> queues_;
  std::map<uint64_t, Client> clients_;  // of sequences that are here
  SequenceQueue running_;
  // Blocks that this step fills first: another sequence that wants the same waits a step and
  // shares.
  std::set<BlockHash> being_filled_;
  SchedulerStats stats_;
  // Kept, so that a step allocates nothing.
  StepPlan plan_;
  std::vector<Sequence*> ran_before_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SCHEDULER_SCHEDULER_H_
