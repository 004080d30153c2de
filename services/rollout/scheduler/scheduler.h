// Scheduler: decides which tokens of which sequences the next step computes.
//
//   Scheduler scheduler({.max_num_seqs = 256, .max_num_batched_tokens = 4096}, blocks);
//   scheduler.Add(sequence);
//   StepPlan plan = scheduler.Plan();
//   RunAndSample(plan);
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
  int64_t max_num_batched_tokens = 4096;  // tokens per step
  // A step that computes a placeholder of an image computes all that follow of the image: they see one
  // another (model::VisionSpec::images_see_ahead).
  bool whole_images = false;
  // Of a model with linear attention (model::RecurrentStates), whose running sequences need one each;
  // 0: another model.
  int64_t num_states = 0;
};

struct PlannedSequence {
  Sequence* sequence = nullptr;
  int64_t num_tokens = 0;  // starting at sequence->num_computed

  // True if the step computes the last token, so the next one can be sampled.
  bool reaches_end() const { return num_tokens == sequence->num_pending(); }
};

struct StepPlan {
  std::vector<PlannedSequence> sequences;
  std::vector<std::pair<int32_t, int32_t>>
      block_copies;  // (from, to); done before the step, in this order
  int64_t num_tokens = 0;
};

struct SchedulerStats {
  int64_t num_preemptions = 0;
  int64_t num_prefilled_tokens = 0;  // computed, prompts and recomputations
  int64_t num_cached_tokens = 0;     // prefix cache hits
};

// Waiting sequences are ordered by priority; clients of equal priority by the tokens computed for
// them so far (least first); those of one client by arrival, less the head start. An admitted sequence
// runs until it is removed or preempted. A step serves decodes first, then running prefills, then
// admits from the queue, within the token budget; long prompts are prefilled in chunks. A group is
// admitted when all its samples have room. When blocks run out, a sequence of the lowest priority is
// preempted and recomputed later: one of the request that has more than half of all running sequences,
// else the latest arrival. As long as each sequence alone fits the cache, the first one always advances.
//
// No request takes everything: while others wait, running prefills leave them a quarter of a step's
// prompt tokens, and a request runs at most request_share() sequences; sequences beyond that are
// preempted for waiting ones.
//
// A state follows from all tokens before it, so sequences of a model with states neither read nor fill
// the prefix cache; the samples of a prompt share its blocks.
//
// The caller owns the sequences, which must stay alive until removed. Owned by the engine thread.
class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, BlockManager& blocks);

  // Returns how many leading tokens of a sequence with images may be computed: those before the first
  // image that is not encoded. Called when the sequence would be planned but for that, in the order in
  // which sequences are served, so the callee may note what it is asked for and prepare it.
  using NumReady = std::function<int64_t(const Sequence&)>;
  // Without it all tokens are ready.
  void SetNumReady(NumReady num_ready) { num_ready_ = std::move(num_ready); }

  // Returns how many leading tokens of a sequence that limits its use of the prefix cache may come from
  // there. Called when the sequence is about to be admitted.
  using NumUsable = std::function<int64_t(Sequence&)>;
  // Without it none may.
  void SetNumUsable(NumUsable num_usable) { num_usable_ = std::move(num_usable); }

  // Lets a sequence whose prompt is for the most part in the prefix cache, as of an episode's next turn,
  // go ahead of earlier ones, such as episodes that have not begun: if turns waited their time, more
  // episodes than the cache holds would each come back to find their blocks evicted. Those are passed
  // over for a bounded number of arrivals. Of a request all sequences or none; before Add().
  void GiveHeadStart(Sequence* sequence) const;
  void Add(Sequence* sequence);

  // Returns an empty plan if nothing can run. Valid until the next call.
  const StepPlan& Plan();

  // Call after the step ran: counts its tokens, publishes the blocks that it filled, and releases
  // those that have left their window. Call before appending tokens or removing sequences.
  void Complete(const StepPlan& plan);

  // Adds `copy`, an equal sequence without blocks. It shares the blocks of `original` and runs, or
  // waits if its request is at its limit. If it runs and has a state, the caller copies that of
  // `original` to it before the next step.
  void Fork(const Sequence& original, Sequence* copy);

  // Frees the sequence's blocks at once. No effect on an unknown sequence.
  void Remove(Sequence* sequence);

  // Preempts every running sequence; returns their number.
  int64_t RecomputeAll();

  // Maximum running sequences of one request while others wait.
  int64_t request_share() const {
    return options_.max_num_seqs - options_.max_num_seqs / kRoomForOthers;
  }

  const SequenceQueue& running() const { return running_; }
  const SequenceQueue& waiting() const { return waiting_; }
  const SchedulerStats& stats() const { return stats_; }

 private:
  // Arrivals, for each sequence that may run.
  static constexpr int64_t kHeadStart = 32;
  static constexpr int64_t kRoomForOthers = 8;    // reserves 1/8 of the sequences
  static constexpr int64_t kTokensForOthers = 4;  // and 1/4 of the tokens left for prompts

  // One client's number of sequences, and the tokens computed for it.
  struct Client {
    int64_t num_sequences = 0;
    int64_t served = 0;
  };
  // The next waiting sequence of one client at one priority.
  struct Turn {
    Client* client;
    const SequenceQueue* queue;
    SequenceQueue::const_iterator next;
  };

  void Enqueue(Sequence* sequence);
  void Dequeue(Sequence* sequence);
  void AddToClient(const Sequence& sequence);
  // Plans running sequences, up to `limit` tokens in the step.
  void PlanRunning(bool decodes, int64_t limit, StepPlan& plan);
  // Admits waiting sequences of one priority. False if lower priorities must wait too.
  bool AdmitTurns(std::vector<Turn> turns, StepPlan& plan);
  enum class Admission { kAdmitted, kPassedOver, kNoRoom };
  Admission AdmitSequence(Sequence* sequence, StepPlan& plan);
  // Running sequences of the request; a prefilling group counts as all its samples.
  int64_t NumRunning(int64_t arrival) const;
  // The request's limit for NumRunning().
  int64_t MaxSequences(int64_t arrival) const;
  // The sequence to preempt for `waiting`: the latest of another request that exceeds its share and
  // has no higher priority, or null.
  Sequence* OverQuotaSequence(const Sequence& waiting) const;
  Sequence* PreemptionVictim() const;
  void Admit(StepPlan& plan);
  // Plans as many pending tokens as are ready and the limit allows, perhaps none. False if the sequence
  // was preempted.
  bool PlanSequence(Sequence* sequence, int64_t limit, StepPlan& plan);
  // Allocates blocks for `num_tokens` more tokens, preempting others if needed. False if `sequence`
  // itself was preempted.
  bool Reserve(Sequence* sequence, int64_t num_tokens, StepPlan& plan);
  std::optional<int32_t> AllocateFor(const Sequence* sequence, StepPlan& plan);
  void Preempt(Sequence* sequence, StepPlan& plan);
  void ReleaseBlocks(Sequence* sequence);
  // Keeps the last tokens of a sequence that ends, for one that continues it; call before
  // ReleaseBlocks().
  void KeepTail(Sequence& sequence);
  // Takes over the last tokens of a sequence that this one continues.
  void TakeTail(Sequence& sequence);
  // The hash of the sequence's full blocks, all of them hashed.
  BlockHash HashSoFar(Sequence& sequence) const;
  // Releases the blocks that no later token of the sequence sees.
  void ReleaseUnseenBlocks(Sequence& sequence);
  bool HasStates() const { return options_.num_states > 0; }
  // Gives the sequence a state, if the model has them. False if none is free.
  bool TakeState(Sequence& sequence);
  std::optional<BlockHash> NextBlockHash(Sequence& sequence) const;
  int64_t NumSlots() const;
  // Leading tokens that the prefix cache may serve.
  int64_t MaxCached(Sequence& sequence) const;
  // Pending tokens that may be computed now.
  int64_t NumReadyPending(const Sequence& sequence) const;
  // As many of the `ready` tokens as the limit allows, without a part of an image that is computed whole:
  // an image that comes first may take all of the step's tokens that are left.
  int64_t NumInStep(const Sequence& sequence, int64_t limit, int64_t ready,
                    const StepPlan& plan) const;

  const SchedulerOptions options_;
  BlockManager& blocks_;
  SequenceQueue waiting_;
  // The waiting sequences by priority and client.
  std::map<int32_t, std::map<uint64_t, SequenceQueue>, std::greater<>> queues_;
  std::map<uint64_t, Client> clients_;  // those with running or waiting sequences
  SequenceQueue running_;
  // Blocks that a sequence of this step fills. Another sequence with the same prefix waits one step
  // and shares them.
  std::set<BlockHash> filling_;
  std::vector<int32_t> free_states_;
  SchedulerStats stats_;
  NumReady num_ready_;
  NumUsable num_usable_;
  // Reused, so a step allocates nothing.
  StepPlan plan_;
  std::vector<Sequence*> running_before_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SCHEDULER_SCHEDULER_H_
