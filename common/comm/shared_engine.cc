#include "common/comm/shared_engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/comm/shared_notice.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

// Longest time until a waiting rank notices that a peer has died.
constexpr absl::Duration kLookInterval = absl::Milliseconds(10);

// A quarter of a rank's notices, so that a rank that has run out of them gets room soon.
constexpr uint64_t kNoticesBetweenRings = kNoticesOfRank / 4;

}  // namespace

SharedEngine::SharedEngine(std::string name, int rank, int size, absl::Duration timeout,
                           std::unique_ptr<SharedSegment> segment,
                           std::unique_ptr<LocalLinks> links, bool has_helper)
    : name_(std::move(name)),
      rank_(rank),
      size_(size),
      peers_((Bit(size) - 1) & ~Bit(rank)),
      segment_(std::move(segment)),
      links_(std::move(links)),
      has_helper_(has_helper),
      own_(segment_->rank(rank)),
      memory_(*links_),
      sends_(size),
      receives_(size),
      compared_(size, 0),
      timeout_(timeout) {}

SharedEngine::~SharedEngine() { Leave(); }

absl::Status SharedEngine::Meet(absl::Time deadline, const Cancelled& cancelled) {
  own_.state.store(RankState::kIn);
  RingPeers();
  while (true) {
    const uint32_t seen = own_.doorbell.rings();
    // Before the states: a rank that had ended here and is away below never joined. In the other
    // order it could have joined and left in between.
    const uint64_t ended = links_->Ended();
    uint64_t away = 0;
    for (int peer = 0; peer < size_; ++peer) {
      const RankState state = segment_->rank(peer).state.load();
      if (state == RankState::kAway) away |= Bit(peer);
      if (state == RankState::kAway && (ended & Bit(peer)) != 0) {
        return absl::UnavailableError(absl::StrCat("rank ", peer, " exited before it joined"));
      }
    }
    if (away == 0) return absl::OkStatus();
    if (cancelled != nullptr && cancelled()) return absl::CancelledError("cancelled");
    if (absl::Now() >= deadline) return absl::DeadlineExceededError("deadline exceeded");
    own_.doorbell.Sleep(seen, kLookInterval);
  }
}

absl::Status SharedEngine::Issue(OperationPtr operation, bool waited_for_at_once) {
  {
    absl::MutexLock lock(&mu_);
    operation->what.timeout = timeout_;
    operation->what.deadline = absl::Now() + timeout_;
    if (!broken_.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat(Describe(operation->what),
                       ": the group is broken; create a new one; cause: ", broken_.message()));
    }
    issued_.push_back(operation);
    ++num_under_way_;
    if (waited_for_at_once) return absl::OkStatus();
  }
  // A message begins here, where its data is in the core's cache.
  using Stream = SharedOperation::Stream;
  const bool begins =
      has_helper_ ? operation->stream != Stream::kCollective : operation->stream == Stream::kSend;
  // Without waiting: a thread that holds the lock takes this message in its next step.
  if (begins && step_mu_.TryLock()) {
    while (!operation->done.load(std::memory_order_acquire) && Step(operation.get())) {
    }
    step_mu_.Unlock();
    if (operation->done.load(std::memory_order_acquire)) return absl::OkStatus();
  }
  if (!has_helper_) return absl::OkStatus();
  {
    absl::MutexLock lock(&mu_);
    if (!helper_.joinable()) helper_ = std::thread([this] { Help(); });
    changed_.Signal();
  }
  own_.doorbell.Ring();  // it may be asleep over what was there before
  return absl::OkStatus();
}

absl::Status SharedEngine::Wait(SharedOperation& operation) {
  if (operation.done.load(std::memory_order_acquire)) return operation.result;
  // Before the lock is taken, so that the helper stops competing for it.
  waiter_.store(true);
  {
    absl::MutexLock lock(&step_mu_);
    while (true) {
      const uint32_t seen = own_.doorbell.rings();
      // Ends by the deadline: Step() breaks the group then, and no sleep exceeds kLookInterval.
      const bool moved = Step(&operation);
      if (operation.done.load(std::memory_order_acquire)) break;
      if (!moved) Sleep(seen);
    }
  }
  waiter_.store(false);
  if (num_under_way_.load() > 0) {
    absl::MutexLock lock(&mu_);
    changed_.Signal();
  }
  return operation.result;
}

void SharedEngine::Help() {
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      // No deadline: there is nothing to do, or a waiter does it, who then signals.
      while (!stopping_ && (num_under_way_.load() == 0 || waiter_.load())) changed_.Wait(&mu_);
      if (stopping_) return;
    }
    const uint32_t seen = own_.doorbell.rings();
    bool moved;
    {
      absl::MutexLock lock(&step_mu_);
      moved = Step(nullptr);
    }
    // Asleep without the lock, so that one who comes to wait need not wake this thread.
    if (!moved && !waiter_.load()) Sleep(seen);
  }
}

void SharedEngine::Sleep(uint32_t seen) { own_.doorbell.Sleep(seen, kLookInterval); }

bool SharedEngine::Step(const SharedOperation* wanted) {
  TakeIssued();
  if (is_broken_.load()) {
    EndAll(status());
    return true;
  }
  // Reads the states before all else: whatever a rank wrote before it left is then found below.
  uint64_t left = 0;
  for (int peer = 0; peer < size_; ++peer) {
    const RankState state = segment_->rank(peer).state.load();
    if (state == RankState::kLeft) left |= Bit(peer);
    if (state == RankState::kFailed) {
      Break(absl::UnavailableError(absl::StrCat(
          Current(), "rank ", peer, " broke the group: ", segment_->rank(peer).reason.data())));
      return true;
    }
  }
  bool moved = CompareNotices();
  moved |= StepCollective();
  for (Queue& queue : sends_) moved |= StepSends(queue);
  moved |= StepReceives(wanted);
  LookAtPeers(moved, left);
  LookAtDeadlines();
  return moved || is_broken_.load();
}

void SharedEngine::TakeIssued() {
  std::vector<OperationPtr> issued;
  {
    absl::MutexLock lock(&mu_);
    if (issued_.empty()) return;
    issued.swap(issued_);
  }
  for (OperationPtr& operation : issued) {
    switch (operation->stream) {
      case SharedOperation::Stream::kCollective:
        operation->number = num_collectives_++;
        collectives_.push_back(std::move(operation));
        break;
      case SharedOperation::Stream::kSend:
        sends_[operation->what.peer].push_back(std::move(operation));
        break;
      case SharedOperation::Stream::kReceive:
        receives_[operation->what.peer].push_back(std::move(operation));
        break;
    }
  }
}

bool SharedEngine::CompareNotices() {
  // Relaxed: only this rank writes it.
  const uint64_t ours = own_.num_notices.load(std::memory_order_relaxed);
  bool moved = false;
  uint64_t fewest = ours;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const RankBlock& theirs = segment_->rank(peer);
    // Pairs with the release in Announce(): the notices that are counted are complete.
    const uint64_t end = std::min(ours, theirs.num_notices.load(std::memory_order_acquire));
    for (; compared_[peer] < end; ++compared_[peer]) {
      const size_t at = compared_[peer] % kNoticesOfRank;
      if (!SameNotice(own_.notices[at], theirs.notices[at])) {
        Break(absl::InternalError(
            absl::StrCat(Current(), "rank ", rank_, " is at ", DescribeNotice(own_.notices[at]),
                         " and rank ", peer, " at ", DescribeNotice(theirs.notices[at]),
                         "; every rank must issue the same collectives in the same order")));
        return true;
      }
      moved = true;
    }
    fewest = std::min(fewest, compared_[peer]);
  }
  const uint64_t before = own_.num_compared.load(std::memory_order_relaxed);
  if (fewest == before) return moved;
  // Release: a peer that sees a slot as free may overwrite it, so we must have read it before.
  own_.num_compared.store(fewest, std::memory_order_release);
  // A rank that is far ahead may wait for this; ringing for every notice would be wasteful.
  if (fewest / kNoticesBetweenRings != before / kNoticesBetweenRings) RingPeers();
  return moved;
}

bool SharedEngine::Announce(SharedOperation& operation) {
  // A notice's slot is free once every peer has compared it.
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const uint64_t compared = segment_->rank(peer).num_compared.load(std::memory_order_acquire);
    if (compared + kNoticesOfRank <= operation.number) operation.waits_for |= Bit(peer);
  }
  if (operation.waits_for != 0) return false;
  own_.notices[operation.number % kNoticesOfRank] = operation.notice;
  own_.num_notices.store(operation.number + 1, std::memory_order_release);
  RingPeers();
  operation.announced = true;
  return true;
}

bool SharedEngine::StepCollective() {
  if (collectives_.empty() || is_broken_.load()) return false;
  SharedOperation& front = *collectives_.front();
  if (!front.announced) {
    front.waits_for = 0;
    if (!Announce(front)) return false;
    CompareNotices();
    if (is_broken_.load()) return true;
  }
  uint64_t readable = 0;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_ && compared_[peer] > front.number) readable |= Bit(peer);
  }
  return StepFront(collectives_, readable);
}

bool SharedEngine::StepSends(Queue& queue) {
  bool moved = StepFront(queue, peers_);
  for (size_t i = 0; i < queue.size() && !is_broken_.load(); ++i) {
    SharedOperation& send = *queue[i];
    if (send.phase == send.phases.size()) continue;
    SharedTransfer& transfer = send.phases[send.phase];
    if (i > 0) {
      moved |= transfer.Step(peers_);
      send.waits_for = transfer.waits_for();
    }
    if (!transfer.handed_over()) break;
  }
  return moved;
}

bool SharedEngine::StepReceives(const SharedOperation* wanted) {
  using Stream = SharedOperation::Stream;
  if (!has_helper_ && !waiter_.load()) return false;
  Queue* first = nullptr;
  if (!has_helper_ && wanted != nullptr && wanted->stream == Stream::kReceive) {
    first = &receives_[wanted->what.peer];
    if (StepFront(*first, peers_)) return true;
  }
  bool moved = false;
  for (Queue& queue : receives_) {
    if (&queue != first) moved |= StepFront(queue, peers_);
  }
  return moved;
}

bool SharedEngine::StepFront(Queue& queue, uint64_t readable) {
  if (queue.empty() || is_broken_.load()) return false;
  SharedOperation& front = *queue.front();
  front.waits_for = 0;
  bool moved = false;
  if (front.phase < front.phases.size()) {
    SharedTransfer& transfer = front.phases[front.phase];
    moved = transfer.Step(readable);
    front.waits_for = transfer.waits_for();
    if (transfer.unexpected().has_value()) {
      Break(absl::InternalError(absl::StrCat(Describe(front.what), ": rank ", front.what.peer,
                                             " sends '", transfer.unexpected()->tag, "' of ",
                                             transfer.unexpected()->bytes, " bytes instead")));
      return true;
    }
    if (!transfer.failure().ok()) {
      Break(absl::Status(transfer.failure().code(),
                         absl::StrCat(Describe(front.what), ": ", transfer.failure().message())));
      return true;
    }
    if (transfer.done()) ++front.phase;
  }
  if (front.phase < front.phases.size()) return moved;
  // A collective is not done before those have entered whom it depends on.
  front.waits_for = front.awaited_peers & ~readable;
  if (front.waits_for != 0) return moved;
  const OperationPtr done = std::move(queue.front());
  queue.pop_front();
  Finish(*done, absl::OkStatus());
  return true;
}

void SharedEngine::LookAtPeers(bool moved, uint64_t left) {
  // A look at the links is a system call, and as long as data moves the peers are there.
  if (moved || is_broken_.load()) return;
  for (Queue* const queue : Queues()) {
    if (queue->empty()) continue;
    const SharedOperation& front = *queue->front();
    if ((front.waits_for & left) != 0) {
      Break(absl::UnavailableError(absl::StrCat(Describe(front.what), ": ",
                                                DescribeRanks(front.waits_for & left, front),
                                                " has left the group")));
      return;
    }
  }
  const absl::Time now = absl::Now();
  if (now < next_look_ || num_under_way_.load() == 0) return;
  // Half, so that a sleep that wakes a little early still finds a look due.
  next_look_ = now + kLookInterval / 2;
  const uint64_t ended = links_->Ended();
  for (int peer = 0; ended != 0 && peer < size_; ++peer) {
    // A rank that leaves says so before its end of the link closes.
    if ((ended & Bit(peer)) == 0 || segment_->rank(peer).state.load() != RankState::kIn) continue;
    Break(absl::UnavailableError(
        absl::StrCat(Current(), "rank ", peer, " is gone: its process has exited")));
    return;
  }
}

void SharedEngine::LookAtDeadlines() {
  if (is_broken_.load()) return;
  const absl::Time now = absl::Now();
  for (Queue* const queue : Queues()) {
    for (const OperationPtr& operation : *queue) {
      if (now < operation->what.deadline) continue;
      const SharedOperation& front = *queue->front();
      std::string why =
          front.waits_for == 0 ? "" : "; waits for " + DescribeRanks(front.waits_for, front);
      Break(absl::DeadlineExceededError(
          absl::StrCat(Describe(operation->what), ": not finished after ",
                       absl::FormatDuration(operation->what.timeout), why)));
      return;
    }
  }
}

std::string SharedEngine::Current() {
  for (Queue* const queue : Queues()) {
    if (!queue->empty()) return Describe(queue->front()->what) + ": ";
  }
  return absl::StrCat("group ", name_, ", rank ", rank_, " of ", size_, ": ");
}

std::vector<SharedEngine::Queue*> SharedEngine::Queues() {
  std::vector<Queue*> queues = {&collectives_};
  for (Queue& queue : sends_) queues.push_back(&queue);
  for (Queue& queue : receives_) queues.push_back(&queue);
  return queues;
}

std::string SharedEngine::DescribeRanks(uint64_t ranks, const SharedOperation& operation) const {
  std::vector<std::string> names;
  for (int peer = 0; peer < size_; ++peer) {
    if ((ranks & Bit(peer)) == 0) continue;
    std::string name = absl::StrCat("rank ", peer);
    const RankBlock& block = segment_->rank(peer);
    if (operation.stream == SharedOperation::Stream::kCollective && operation.announced) {
      const uint64_t count = block.num_notices.load(std::memory_order_acquire);
      if (count <= operation.number) {
        absl::StrAppend(
            &name, " (which has not reached it",
            count == 0 ? ""
                       : absl::StrCat("; its latest is ",
                                      DescribeNotice(block.notices[(count - 1) % kNoticesOfRank])),
            ")");
      }
    }
    names.push_back(std::move(name));
  }
  return absl::StrJoin(names, ", ");
}

void SharedEngine::EndAll(const absl::Status& cause) {
  for (Queue* const queue : Queues()) {
    Queue ended;
    ended.swap(*queue);
    for (const OperationPtr& operation : ended) {
      const std::string description = Describe(operation->what);
      Finish(*operation, absl::StartsWith(cause.message(), description)
                             ? cause
                             : absl::Status(cause.code(),
                                            absl::StrCat(description,
                                                         ": ended because of: ", cause.message())));
    }
  }
}

void SharedEngine::Finish(SharedOperation& operation, absl::Status result) {
  operation.result = std::move(result);
  // Before `done`, after which the waiter may free the memory that they point into.
  operation.phases.clear();
  operation.tensors.clear();
  --num_under_way_;
  operation.completed_at = std::chrono::steady_clock::now();
  operation.done.store(true, std::memory_order_release);
}

void SharedEngine::SetTimeout(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  timeout_ = timeout;
}

absl::Status SharedEngine::status() const {
  absl::MutexLock lock(&mu_);
  return broken_;
}

void SharedEngine::Break(absl::Status reason) {
  {
    absl::MutexLock lock(&mu_);
    if (!broken_.ok()) return;
    broken_ = reason;
    const std::string text(reason.message().substr(0, own_.reason.size() - 1));
    std::memcpy(own_.reason.data(), text.c_str(), text.size() + 1);
    own_.state.store(RankState::kFailed);
    is_broken_.store(true);
  }
  RingPeers();
  own_.doorbell.Ring();
}

void SharedEngine::Leave() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    changed_.Signal();
  }
  own_.doorbell.Ring();
  if (helper_.joinable()) helper_.join();
  {
    absl::MutexLock lock(&step_mu_);
    TakeIssued();
    if (is_broken_.load()) EndAll(status());
  }
  RankState in = RankState::kIn;
  // A rank that failed stays kFailed: its peers must not take that for an orderly leave.
  if (own_.state.compare_exchange_strong(in, RankState::kLeft)) {
    RingPeers();
  }
}

void SharedEngine::RingPeers() const {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) segment_->rank(peer).doorbell.Ring();
  }
}

}  // namespace tandem::comm
