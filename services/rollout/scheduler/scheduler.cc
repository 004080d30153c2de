#include "services/rollout/scheduler/scheduler.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/types/span.h"

namespace tandem::rollout {

Scheduler::Scheduler(const SchedulerOptions& options, BlockManager& blocks)
    : options_(options), blocks_(blocks) {
  // Taken from the back. Low ones go first, so that no more memory is touched than needed.
  for (int64_t i = options.num_states - 1; i >= 0; --i) {
    free_states_.push_back(static_cast<int32_t>(i));
  }
}

void Scheduler::AddToClient(const Sequence& sequence) {
  const auto [at, is_new] = clients_.try_emplace(sequence.client);
  if (is_new) {
    // A returning client gets no credit for tokens that it did not request while away.
    int64_t least = -1;
    for (const auto& [id, client] : clients_) {
      if (id != sequence.client && (least < 0 || client.served < least)) least = client.served;
    }
    at->second.served = std::max<int64_t>(0, least);
  }
  ++at->second.num_sequences;
}

void Scheduler::Add(Sequence* sequence) {
  AddToClient(*sequence);
  Enqueue(sequence);
}

void Scheduler::GiveHeadStart(Sequence* sequence) const {
  if (sequence->max_cached == 0 || HasStates()) return;
  const int64_t num_tokens = sequence->num_tokens();
  const int64_t cached = blocks_.NumCached(sequence->tokens, num_tokens, sequence->hashes);
  if (2 * cached > num_tokens) sequence->head_start = kHeadStart * options_.max_num_seqs;
}

void Scheduler::Enqueue(Sequence* sequence) {
  waiting_.insert(sequence);
  queues_[sequence->priority][sequence->client].insert(sequence);
}

void Scheduler::Dequeue(Sequence* sequence) {
  waiting_.erase(sequence);
  const auto level = queues_.find(sequence->priority);
  const auto queue = level->second.find(sequence->client);
  queue->second.erase(sequence);
  if (!queue->second.empty()) return;
  level->second.erase(queue);
  if (level->second.empty()) queues_.erase(level);
}

const StepPlan& Scheduler::Plan() {
  StepPlan& plan = plan_;
  plan.sequences.clear();
  plan.block_copies.clear();
  plan.num_tokens = 0;
  filling_.clear();
  const int64_t preemptions = stats_.num_preemptions;
  const int64_t budget = options_.max_num_batched_tokens;
  PlanRunning(/*decodes=*/true, budget, plan);
  const bool others_may_come = !waiting_.empty() && NumSlots() < options_.max_num_seqs;
  const int64_t left = budget - plan.num_tokens;
  PlanRunning(/*decodes=*/false, others_may_come ? budget - left / kTokensForOthers : budget, plan);
  // After a preemption admit nothing: the preempted sequence would take blocks that others need.
  if (stats_.num_preemptions == preemptions) Admit(plan);
  return plan;
}

void Scheduler::PlanRunning(bool decodes, int64_t limit, StepPlan& plan) {
  running_before_.assign(running_.begin(), running_.end());
  for (Sequence* sequence : running_before_) {
    if (plan.num_tokens >= limit) return;
    // Skip sequences that an earlier one preempted, and those of the other kind.
    if (!running_.contains(sequence) || (sequence->num_pending() == 1) != decodes) continue;
    PlanSequence(sequence, limit - plan.num_tokens, plan);
  }
}

void Scheduler::Admit(StepPlan& plan) {
  std::vector<std::vector<Turn>> levels;
  for (const auto& [priority, queues] : queues_) {
    std::vector<Turn>& turns = levels.emplace_back();
    for (const auto& [client, queue] : queues) {
      turns.push_back({&clients_[client], &queue, queue.begin()});
    }
  }
  for (std::vector<Turn>& turns : levels) {
    if (!AdmitTurns(std::move(turns), plan)) return;
  }
}

bool Scheduler::AdmitTurns(std::vector<Turn> turns, StepPlan& plan) {
  while (!turns.empty()) {
    if (plan.num_tokens >= options_.max_num_batched_tokens) return false;
    const auto turn =
        std::min_element(turns.begin(), turns.end(), [](const Turn& a, const Turn& b) {
          if (a.client->served != b.client->served) return a.client->served < b.client->served;
          return ByPriority()(*a.next, *b.next);
        });
    Sequence* const sequence = *turn->next;
    // Read first: admitting the last sequence of a queue destroys the queue.
    const bool is_last = std::next(turn->next) == turn->queue->end();
    ++turn->next;
    if (is_last) turns.erase(turn);
    if (AdmitSequence(sequence, plan) == Admission::kNoRoom) return false;
  }
  return true;
}

Scheduler::Admission Scheduler::AdmitSequence(Sequence* sequence, StepPlan& plan) {
  const int64_t most = MaxSequences(sequence->arrival);
  const int64_t wanted = std::min<int64_t>(sequence->num_samples, most);
  if (NumRunning(sequence->arrival) + wanted > most) return Admission::kPassedOver;
  while (NumSlots() + wanted > options_.max_num_seqs) {
    Sequence* const surplus = OverQuotaSequence(*sequence);
    if (surplus == nullptr) return Admission::kNoRoom;
    Preempt(surplus, plan);
  }
  const int64_t slots = NumSlots();

  sequence->may_publish = !HasStates();
  const bool reads_cache = sequence->max_cached > 0 && !HasStates();
  PrefixMatch match;
  if (reads_cache) {
    match = blocks_.MatchPrefix(sequence->tokens, MaxCached(*sequence), sequence->hashes);
  }
  sequence->blocks = std::move(match.blocks);
  sequence->num_computed = match.num_tokens;
  sequence->num_hashed_blocks = match.num_tokens / blocks_.block_size();

  const std::optional<BlockHash> next = NextBlockHash(*sequence);
  const bool may_share_next =
      reads_cache && blocks_.block_size() <= sequence->max_cached - sequence->num_computed;
  if (may_share_next && next.has_value() && filling_.contains(*next)) {
    ReleaseBlocks(sequence);
    return Admission::kPassedOver;
  }
  // Keep room for the running sequences to grow, or they would soon preempt each other.
  const int64_t reserve = std::min(slots * blocks_.num_groups(), blocks_.num_blocks() / 32);
  const auto held = std::count_if(sequence->blocks.begin(), sequence->blocks.end(),
                                  [](int32_t block) { return block != model::kNoBlock; });
  const int64_t needed =
      blocks_.MaxBlocksAtOnce(sequence->num_tokens(), options_.max_num_batched_tokens) - held;
  const bool has_blocks = blocks_.num_free() >= needed + reserve || running_.empty();
  if (!has_blocks || !TakeState(*sequence)) {
    ReleaseBlocks(sequence);
    return Admission::kNoRoom;
  }
  // It waits in the queue for its first image, without blocks.
  if (NumReadyPending(*sequence) == 0) {
    ReleaseBlocks(sequence);
    return Admission::kPassedOver;
  }
  // Limits are whole blocks.
  if (reads_cache && !sequence->limits_cache) TakeTail(*sequence);
  if (sequence->num_sampled() == 0) sequence->num_cached = sequence->num_computed;
  stats_.num_cached_tokens += sequence->num_computed;
  Dequeue(sequence);
  running_.insert(sequence);
  PlanSequence(sequence, options_.max_num_batched_tokens - plan.num_tokens, plan);
  return Admission::kAdmitted;
}

bool Scheduler::PlanSequence(Sequence* sequence, int64_t limit, StepPlan& plan) {
  const int64_t num_tokens = NumInStep(*sequence, limit, NumReadyPending(*sequence), plan);
  if (num_tokens == 0) return true;
  if (!Reserve(sequence, num_tokens, plan)) return false;
  if (const auto next = NextBlockHash(*sequence); next.has_value()) filling_.insert(*next);
  plan.sequences.push_back({sequence, num_tokens});
  plan.num_tokens += num_tokens;
  clients_[sequence->client].served += num_tokens;
  return true;
}

bool Scheduler::Reserve(Sequence* sequence, int64_t num_tokens, StepPlan& plan) {
  const int64_t block_size = blocks_.block_size();
  const int64_t groups = blocks_.num_groups();
  const int64_t needed = blocks_.BlocksFor(sequence->num_computed + num_tokens) * groups;
  // A fork shares its partly filled blocks; the first to write one copies it.
  if (sequence->num_computed % block_size != 0) {
    const int64_t first = sequence->num_computed / block_size * groups;
    for (int64_t i = first; i < first + groups; ++i) {
      const int32_t shared = sequence->blocks[i];
      if (!blocks_.IsShared(shared)) continue;
      const std::optional<int32_t> own = AllocateFor(sequence, plan);
      if (!own.has_value()) return false;
      // If this preempted the other owners, the copy is redundant but correct.
      plan.block_copies.emplace_back(shared, *own);
      blocks_.Release(shared);
      sequence->blocks[i] = *own;
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
    Sequence* const victim = PreemptionVictim();
    Preempt(victim, plan);
    if (victim == sequence) return std::nullopt;
  }
}

Sequence* Scheduler::PreemptionVictim() const {
  Sequence* const last = *running_.rbegin();
  int64_t of_request = 0;  // sequences seen of the current request; they are neighbours
  int64_t arrival = -1;
  for (auto it = running_.rbegin(); it != running_.rend() && (*it)->priority == last->priority;
       ++it) {
    of_request = (*it)->arrival == arrival ? of_request + 1 : 1;
    arrival = (*it)->arrival;
    if (of_request > 1 && 2 * of_request > static_cast<int64_t>(running_.size())) {
      // The latest of the request; base() is the one after `it`.
      return *std::next(it.base(), of_request - 2);
    }
  }
  return last;
}

int64_t Scheduler::NumRunning(int64_t arrival) const {
  int64_t count = 0;
  for (const Sequence* sequence : running_) {
    if (sequence->arrival == arrival) count += sequence->num_samples;
  }
  return count;
}

int64_t Scheduler::MaxSequences(int64_t arrival) const {
  // If the first and the last waiting sequence belong to one request, all do.
  const bool others_wait = !waiting_.empty() && ((*waiting_.begin())->arrival != arrival ||
                                                 (*waiting_.rbegin())->arrival != arrival);
  return others_wait ? request_share() : options_.max_num_seqs;
}

Sequence* Scheduler::OverQuotaSequence(const Sequence& waiting) const {
  std::map<int64_t, int64_t> running;  // by arrival
  for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
    if ((*it)->priority > waiting.priority) break;
    if ((*it)->arrival == waiting.arrival || (*it)->num_samples > 1) continue;
    if (running.empty() || !running.contains((*it)->arrival)) {
      running[(*it)->arrival] = NumRunning((*it)->arrival);
      if (running[(*it)->arrival] > request_share()) return *it;
    }
  }
  return nullptr;
}

void Scheduler::Preempt(Sequence* sequence, StepPlan& plan) {
  const auto planned =
      std::find_if(plan.sequences.begin(), plan.sequences.end(),
                   [&](const PlannedSequence& p) { return p.sequence == sequence; });
  if (planned != plan.sequences.end()) {
    plan.num_tokens -= planned->num_tokens;
    clients_[sequence->client].served -= planned->num_tokens;
    plan.sequences.erase(planned);
  }
  running_.erase(sequence);
  ReleaseBlocks(sequence);
  Enqueue(sequence);
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
      const BlockHash hash = sequence.hashes.At(blocks_.root(), sequence.tokens, block_size, i);
      for (int64_t group = 0; group < blocks_.num_groups(); ++group) {
        blocks_.Publish(sequence.blocks[i * blocks_.num_groups() + group], hash, group);
      }
    }
    ReleaseUnseenBlocks(sequence);
  }
}

void Scheduler::ReleaseUnseenBlocks(Sequence& sequence) {
  const int64_t groups = blocks_.num_groups();
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t first = blocks_.FirstBlockInUse(group, sequence.num_computed);
    // Earlier steps released the blocks before a released one.
    for (int64_t i = first - 1; i >= 0; --i) {
      int32_t& block = sequence.blocks[i * groups + group];
      if (block == model::kNoBlock) break;
      blocks_.Release(block);
      block = model::kNoBlock;
    }
  }
}

void Scheduler::Fork(const Sequence& original, Sequence* copy) {
  AddToClient(*copy);
  copy->head_start = original.head_start;
  if (NumRunning(copy->arrival) >= MaxSequences(copy->arrival) || !TakeState(*copy)) {
    copy->num_cached = original.num_cached;
    Enqueue(copy);
    return;
  }
  copy->blocks = original.blocks;
  for (const int32_t block : copy->blocks) {
    if (block != model::kNoBlock) blocks_.Retain(block);
  }
  copy->num_computed = original.num_computed;
  copy->num_cached = original.num_cached;
  copy->num_hashed_blocks = original.num_hashed_blocks;
  copy->hashes = original.hashes;
  copy->may_publish = original.may_publish;
  running_.insert(copy);
}

void Scheduler::Remove(Sequence* sequence) {
  const bool waited = waiting_.contains(sequence);
  if (waited) Dequeue(sequence);
  const bool ran = running_.erase(sequence) > 0;
  if (ran) {
    KeepTail(*sequence);
    ReleaseBlocks(sequence);
  }
  if (!waited && !ran) return;
  const auto client = clients_.find(sequence->client);
  if (--client->second.num_sequences == 0) clients_.erase(client);
}

int64_t Scheduler::RecomputeAll() {
  const int64_t count = static_cast<int64_t>(running_.size());
  for (Sequence* sequence : running_) {
    ReleaseBlocks(sequence);
    Enqueue(sequence);
  }
  running_.clear();
  return count;
}

void Scheduler::ReleaseBlocks(Sequence* sequence) {
  // Release the end first: it is evicted first, and fewer prompts share it than the beginning.
  for (auto block = sequence->blocks.rbegin(); block != sequence->blocks.rend(); ++block) {
    if (*block != model::kNoBlock) blocks_.Release(*block);
  }
  sequence->blocks.clear();
  sequence->num_computed = 0;
  sequence->num_hashed_blocks = 0;
  if (sequence->state >= 0) free_states_.push_back(std::exchange(sequence->state, -1));
}

bool Scheduler::TakeState(Sequence& sequence) {
  if (!HasStates()) return true;
  if (free_states_.empty()) return false;
  sequence.state = free_states_.back();
  free_states_.pop_back();
  return true;
}

BlockHash Scheduler::HashSoFar(Sequence& sequence) const {
  if (sequence.num_hashed_blocks == 0) return blocks_.root();
  return sequence.hashes.At(blocks_.root(), sequence.tokens, blocks_.block_size(),
                            sequence.num_hashed_blocks - 1);
}

void Scheduler::KeepTail(Sequence& sequence) {
  const int64_t groups = blocks_.num_groups();
  const int64_t begin = sequence.num_hashed_blocks * blocks_.block_size();
  const int64_t count = sequence.num_computed - begin;
  if (!sequence.may_publish || count <= 0 || count >= blocks_.block_size()) return;
  if (sequence.hashes.HasDigestIn(begin, begin + count)) return;
  const auto blocks =
      absl::MakeConstSpan(sequence.blocks).subspan(sequence.num_hashed_blocks * groups, groups);
  // A fork that shares them will write into them.
  for (const int32_t block : blocks) {
    if (blocks_.IsShared(block)) return;
  }
  blocks_.KeepTail(blocks, HashSoFar(sequence),
                   absl::MakeConstSpan(sequence.tokens).subspan(begin, count));
}

void Scheduler::TakeTail(Sequence& sequence) {
  const int64_t begin = sequence.num_computed;
  // A tail is found by the ids of its tokens alone.
  if (sequence.hashes.HasDigestIn(begin, begin + blocks_.block_size())) return;
  const int64_t most = std::min(sequence.num_tokens() - 1, sequence.max_cached);
  if (most <= begin) return;
  // Compute at least one token, as for MatchPrefix().
  const auto next = absl::MakeConstSpan(sequence.tokens).subspan(begin, most - begin);
  const Tail tail = blocks_.TakeTail(HashSoFar(sequence), next);
  sequence.blocks.insert(sequence.blocks.end(), tail.blocks.begin(), tail.blocks.end());
  sequence.num_computed += tail.num_tokens;
}

std::optional<BlockHash> Scheduler::NextBlockHash(Sequence& sequence) const {
  const int64_t block_size = blocks_.block_size();
  if (!sequence.may_publish || sequence.num_hashed_blocks * block_size != sequence.num_computed ||
      sequence.num_pending() < block_size) {
    return std::nullopt;
  }
  return sequence.hashes.At(blocks_.root(), sequence.tokens, block_size,
                            sequence.num_hashed_blocks);
}

int64_t Scheduler::MaxCached(Sequence& sequence) const {
  // Compute at least one token: its logits are sampled.
  const int64_t most = std::min(sequence.num_tokens() - 1, sequence.max_cached);
  if (!sequence.limits_cache) return most;
  return num_usable_ ? std::min(most, num_usable_(sequence)) : 0;
}

int64_t Scheduler::NumReadyPending(const Sequence& sequence) const {
  const int64_t pending = sequence.num_pending();
  if (sequence.places == nullptr || !num_ready_) return pending;
  return std::clamp<int64_t>(num_ready_(sequence) - sequence.num_computed, 0, pending);
}

int64_t Scheduler::NumInStep(const Sequence& sequence, int64_t limit, int64_t ready,
                             const StepPlan& plan) const {
  const int64_t most = std::min(limit, ready);
  if (!options_.whole_images || sequence.places == nullptr || most == ready) return most;
  const model::ImageRun image = sequence.places->RunAround(sequence.num_computed + most);
  if (image.begin == image.end) return most;
  if (image.begin > sequence.num_computed) return image.begin - sequence.num_computed;
  // Fairness limits steps to fewer tokens than an image may have.
  const int64_t rest = image.end - sequence.num_computed;
  return rest <= options_.max_num_batched_tokens - plan.num_tokens ? rest : 0;
}

int64_t Scheduler::NumSlots() const {
  int64_t slots = 0;
  for (const Sequence* sequence : running_) {
    slots += std::min<int64_t>(sequence->num_samples, options_.max_num_seqs);
  }
  return slots;
}

}  // namespace tandem::rollout
