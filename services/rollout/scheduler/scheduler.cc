#include "services/rollout/scheduler/scheduler.h"

#include <algorithm>

#include "absl/types/span.h"

namespace tandem::rollout {

StepPlan Scheduler::Plan() {
  StepPlan plan;
  being_filled_.clear();
  const int64_t preemptions = stats_.num_preemptions;
  PlanRunning(/*decodes=*/true, plan);
  PlanRunning(/*decodes=*/false, plan);
  // Whoever was just made to wait would be admitted again, into the blocks that others are short
  // of.
  if (stats_.num_preemptions == preemptions) Admit(plan);
  return plan;
}

void Scheduler::PlanRunning(bool decodes, StepPlan& plan) {
  const std::vector<Sequence*> sequences(running_.begin(), running_.end());
  for (Sequence* sequence : sequences) {
    if (plan.num_tokens >= options_.max_num_batched_tokens) return;
    // Preempted by an earlier one meanwhile, or the other kind.
    if (!running_.contains(sequence) || (sequence->num_pending() == 1) != decodes) continue;
    PlanOne(sequence, plan);
  }
}

void Scheduler::Admit(StepPlan& plan) {
  int64_t slots = NumSlots();
  std::vector<Sequence*> admitted;
  for (auto it = waiting_.begin();
       it != waiting_.end() && plan.num_tokens < options_.max_num_batched_tokens;) {
    Sequence* sequence = *it;
    if (slots + sequence->num_samples > options_.max_num_seqs && slots > 0) break;

    PrefixMatch match{{}, blocks_.root()};
    if (sequence->may_use_cache) {
      // One token at least is computed, for its logits.
      match = blocks_.MatchPrefix(sequence->tokens, sequence->num_tokens() - 1);
    }
    sequence->blocks = std::move(match.blocks);
    sequence->hash = match.hash;
    sequence->num_hashed_blocks = static_cast<int64_t>(sequence->blocks.size());
    sequence->num_computed = sequence->num_hashed_blocks * blocks_.block_size();

    const std::optional<BlockHash> next = NextBlockHash(*sequence);
    if (sequence->may_use_cache && next.has_value() && being_filled_.contains(*next)) {
      ReleaseBlocks(sequence);
      ++it;
      continue;
    }
    // Room to grow for those that run, lest they preempt each other at once.
    const int64_t reserve = std::min(slots, blocks_.num_blocks() / 32);
    const int64_t needed =
        blocks_.BlocksFor(sequence->num_tokens()) - static_cast<int64_t>(sequence->blocks.size());
    if (blocks_.num_free() < needed + reserve && !running_.empty()) {
      ReleaseBlocks(sequence);
      break;
    }
    if (sequence->num_sampled() == 0) sequence->num_cached = sequence->num_computed;
    sequence->may_publish = true;
    stats_.num_cached_tokens += sequence->num_computed;
    it = waiting_.erase(it);
    running_.insert(sequence);
    slots += sequence->num_samples;
    PlanOne(sequence, plan);
  }
}

bool Scheduler::PlanOne(Sequence* sequence, StepPlan& plan) {
  const int64_t budget = options_.max_num_batched_tokens - plan.num_tokens;
  const int64_t num_tokens = std::min(budget, sequence->num_pending());
  if (!Reserve(sequence, num_tokens, plan)) return false;
  if (const auto next = NextBlockHash(*sequence); next.has_value()) being_filled_.insert(*next);
  plan.sequences.push_back({sequence, num_tokens});
  plan.num_tokens += num_tokens;
  return true;
}

bool Scheduler::Reserve(Sequence* sequence, int64_t num_tokens, StepPlan& plan) {
  const int64_t block_size = blocks_.block_size();
  const int64_t needed = blocks_.BlocksFor(sequence->num_computed + num_tokens);
  // The block that is filled in part is shared after a fork; whoever writes it first copies it.
  if (sequence->num_computed % block_size != 0) {
    const size_t last = sequence->num_computed / block_size;
    const int32_t shared = sequence->blocks[last];
    if (blocks_.IsShared(shared)) {
      const std::optional<int32_t> own = AllocateFor(sequence, plan);
      if (!own.has_value()) return false;
      // Those that shared it may have been preempted for it.
      plan.block_copies.emplace_back(shared, *own);
      blocks_.Release(shared);
      sequence->blocks[last] = *own;
    }
  }
  while (static_cast<int64_t>(sequence->blocks.size()) < needed) {
    const std::optional<int32_t> block = AllocateFor(sequence, plan);
    if (!block.has_value()) return false;
    sequence->blocks.push_back(*block);
  }
  return true;
}

std::optional<int32_t> Scheduler::AllocateFor(const Sequence* sequence, StepPlan& plan) {
  for (;;) {
    if (const auto block = blocks_.Allocate(); block.has_value()) return block;
    Sequence* latest = *running_.rbegin();
    Preempt(latest, plan);
    if (latest == sequence) return std::nullopt;
  }
}

void Scheduler::Preempt(Sequence* sequence, StepPlan& plan) {
  const auto planned =
      std::find_if(plan.sequences.begin(), plan.sequences.end(),
                   [&](const PlannedSequence& p) { return p.sequence == sequence; });
  if (planned != plan.sequences.end()) {
    plan.num_tokens -= planned->num_tokens;
    plan.sequences.erase(planned);
  }
  running_.erase(sequence);
  ReleaseBlocks(sequence);
  waiting_.insert(sequence);
  ++stats_.num_preemptions;
}

void Scheduler::Complete(const StepPlan& plan) {
  for (const PlannedSequence& planned : plan.sequences) {
    Sequence& sequence = *planned.sequence;
    if (planned.num_tokens > 1 || sequence.num_computed < sequence.num_prompt_tokens) {
      stats_.num_prefilled_tokens += planned.num_tokens;
    }
    sequence.num_computed += planned.num_tokens;
    const int64_t block_size = blocks_.block_size();
    while (sequence.may_publish &&
           (sequence.num_hashed_blocks + 1) * block_size <= sequence.num_computed) {
      const int64_t i = sequence.num_hashed_blocks++;
      sequence.hash = ChainHash(
          sequence.hash, absl::MakeConstSpan(sequence.tokens).subspan(i * block_size, block_size));
      blocks_.Publish(sequence.blocks[i], sequence.hash);
    }
  }
}

void Scheduler::Fork(const Sequence& of, Sequence* copy) {
  copy->blocks = of.blocks;
  for (const int32_t block : copy->blocks) blocks_.Retain(block);
  copy->num_computed = of.num_computed;
  copy->num_cached = of.num_cached;
  copy->num_hashed_blocks = of.num_hashed_blocks;
  copy->hash = of.hash;
  copy->may_publish = of.may_publish;
  running_.insert(copy);
}

void Scheduler::Remove(Sequence* sequence) {
  waiting_.erase(sequence);
  if (running_.erase(sequence) > 0) ReleaseBlocks(sequence);
}

int64_t Scheduler::RecomputeAll() {
  const int64_t count = static_cast<int64_t>(running_.size());
  for (Sequence* sequence : running_) {
    ReleaseBlocks(sequence);
    waiting_.insert(sequence);
  }
  running_.clear();
  return count;
}

void Scheduler::ReleaseBlocks(Sequence* sequence) {
  // The end of a prefix is of less use to others than its beginning, and goes first.
  for (auto block = sequence->blocks.rbegin(); block != sequence->blocks.rend(); ++block) {
    blocks_.Release(*block);
  }
  sequence->blocks.clear();
  sequence->num_computed = 0;
  sequence->num_hashed_blocks = 0;
}

std::optional<BlockHash> Scheduler::NextBlockHash(const Sequence& sequence) const {
  const int64_t block_size = blocks_.block_size();
  if (!sequence.may_publish || sequence.num_hashed_blocks * block_size != sequence.num_computed ||
      sequence.num_pending() < block_size) {
    return std::nullopt;
  }
  return ChainHash(sequence.hash,
                   absl::MakeConstSpan(sequence.tokens).subspan(sequence.num_computed, block_size));
}

int64_t Scheduler::NumSlots() const {
  int64_t slots = 0;
  for (const Sequence* sequence : running_) slots += sequence->num_samples;
  return slots;
}

}  // namespace tandem::rollout
