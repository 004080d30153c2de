#include "tools/tandem/driver/group_queue.h"

#include <algorithm>
#include <utility>

namespace tandem::driver {

int64_t GroupQueue::capacity() const {
  const int64_t begun = num_running() + num_ready();
  // Those before the batch that trains are done with on both sides of the rule.
  int64_t capacity = (options_.max_staleness + 1) * options_.batch_size - in_training_ - begun;
  capacity = std::min(capacity, (options_.num_batches - num_taken_) * options_.batch_size - begun);
  if (options_.max_running > 0) {
    capacity = std::min(capacity, options_.max_running - num_running());
  }
  return std::max<int64_t>(0, capacity);
}

void GroupQueue::Begin(int64_t place) { running_.insert(place); }

void GroupQueue::Finish(int64_t place, Group group) {
  running_.erase(place);
  ready_[place] = std::move(group);
}

void GroupQueue::Drop(int64_t place) { running_.erase(place); }

std::optional<std::vector<Group>> GroupQueue::Take(int64_t version) {
  const auto is_stale = [&](const Group& group) {
    return version - group.oldest_version(version) > options_.max_staleness;
  };
  if (options_.drops_stale) {
    num_stale_ += static_cast<int64_t>(
        std::erase_if(ready_, [&](const auto& entry) { return is_stale(entry.second); }));
  }
  if (num_ready() < options_.batch_size) return std::nullopt;
  std::vector<Group> batch;
  while (static_cast<int64_t>(batch.size()) < options_.batch_size) {
    if (is_stale(ready_.begin()->second)) ++num_stale_;
    batch.push_back(std::move(ready_.begin()->second));
    ready_.erase(ready_.begin());
  }
  in_training_ = options_.batch_size;
  ++num_taken_;
  return batch;
}

int64_t GroupQueue::TakeNumStale() { return std::exchange(num_stale_, 0); }

int64_t GroupQueue::FirstOpen(int64_t next) const {
  if (!running_.empty()) next = std::min(next, *running_.begin());
  if (!ready_.empty()) next = std::min(next, ready_.begin()->first);
  return next;
}

std::vector<int64_t> GroupQueue::DonePlaces(int64_t next) const {
  std::vector<int64_t> done;
  for (int64_t place = FirstOpen(next); place < next; ++place) {
    if (!running_.contains(place) && !ready_.contains(place)) done.push_back(place);
  }
  return done;
}

}  // namespace tandem::driver
