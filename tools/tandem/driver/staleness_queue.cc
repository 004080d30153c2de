#include "tools/tandem/driver/staleness_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"

namespace tandem::driver {
namespace {

// Versions since the group's oldest token.
int64_t Lag(const Group& group, int64_t version) { return version - group.oldest_version(version); }

}  // namespace

int64_t StalenessQueue::capacity() const {
  if (!error_.ok()) return 0;
  const int64_t begun = num_running() + num_ready();
  // The rule counts every group that began. Groups of batches taken so far are on both sides of it,
  // so it bounds the groups that run or are ready by the batches that may still begin.
  const int64_t num_batches_ahead = options_.max_staleness + num_opened_ - num_taken_;
  int64_t capacity = num_batches_ahead * options_.batch_size - begun;
  capacity = std::min(capacity, (options_.num_batches - num_taken_) * options_.batch_size - begun);
  if (options_.max_running > 0) {
    capacity = std::min(capacity, options_.max_running - num_running());
  }
  return std::max<int64_t>(0, capacity);
}

GroupSeed StalenessQueue::Begin(int64_t place) {
  running_.insert(place);
  due_[place] = num_opened_ + options_.max_staleness;
  return {
      .step = 1 + place / options_.batch_size, .batch = 0, .place = place % options_.batch_size};
}

void StalenessQueue::Finish(int64_t place, Group group, bool differs) {
  running_.erase(place);
  if (differs) {
    ready_[place] = std::move(group);
    return;
  }
  due_.erase(place);
  ++num_filtered_;
  filtered_reward_ += group.mean_reward();
  if (options_.max_filtered == 0 || num_filtered_ <= options_.max_filtered || !error_.ok()) return;
  error_ = absl::FailedPreconditionError(absl::StrFormat(
      "step %d: expected %d groups whose rewards differ (data.train_batch_size); found %d, and %d "
      "whose rewards are all equal, more than algorithm.filter_groups.max_num_gen_batches allows. "
      "The prompts are too easy or too hard for the policy: give other data, a larger rollout.n or "
      "rollout.temperature, or more batches (0 generates without end)",
      options_.first_step + num_taken_, options_.batch_size, num_ready(), num_filtered_));
}

void StalenessQueue::Abort(int64_t place) {
  running_.erase(place);
  due_.erase(place);
  if (error_.ok()) error_ = absl::CancelledError("the rollouts' requests were aborted");
}

void StalenessQueue::Drop(int64_t place) {
  running_.erase(place);
  due_.erase(place);
}

absl::StatusOr<std::optional<StepBatch>> StalenessQueue::Take(int64_t version) {
  if (!error_.ok()) return error_;
  if (options_.drops_stale) DropStale(version);
  if (num_ready() < options_.batch_size || MustWait()) return std::nullopt;
  StepBatch batch;
  while (static_cast<int64_t>(batch.groups.size()) < options_.batch_size) {
    if (Lag(ready_.begin()->second, version) > options_.max_staleness) ++num_stale_;
    batch.groups.push_back(std::move(ready_.begin()->second));
    due_.erase(ready_.begin()->first);
    ready_.erase(ready_.begin());
  }
  ++num_taken_;
  AddMetrics(batch);
  return batch;
}

bool StalenessQueue::MustWait() const {
  if (!options_.waits || running_.empty()) return false;
  const int64_t last_taken = std::next(ready_.begin(), options_.batch_size - 1)->first;
  int64_t num_left = 0;
  for (const auto& [place, due] : due_) {  // due steps ascend, like places
    if (place <= last_taken && !running_.contains(place)) continue;
    if (num_left++ >= (due - num_opened_) * options_.batch_size) return true;
  }
  return false;
}

void StalenessQueue::DropStale(int64_t version) {
  for (auto it = ready_.begin(); it != ready_.end();) {
    if (Lag(it->second, version) <= options_.max_staleness) {
      ++it;
      continue;
    }
    ++num_stale_;
    for (const Completion& completion : it->second.completions) {
      ++dropped_samples_;
      dropped_tokens_ += static_cast<double>(completion.token_ids.size());
      dropped_reward_ += completion.reward;
    }
    due_.erase(it->first);
    it = ready_.erase(it);
  }
}

void StalenessQueue::AddMetrics(StepBatch& batch) {
  double reward = std::exchange(filtered_reward_, 0);
  for (const Group& group : batch.groups) reward += group.mean_reward();
  const int64_t num_filtered = std::exchange(num_filtered_, 0);
  batch.metrics["rollout/judged_reward/mean"] =
      reward / static_cast<double>(options_.batch_size + num_filtered);
  if (options_.filters) {
    batch.metrics["rollout/filtered_groups"] = static_cast<double>(num_filtered);
  }
  batch.metrics["async/running_groups"] = static_cast<double>(num_running());
  batch.metrics["async/ready_groups"] = static_cast<double>(num_ready());
  batch.metrics[options_.drops_stale ? "async/dropped_groups" : "async/stale_groups"] =
      static_cast<double>(std::exchange(num_stale_, 0));
  if (dropped_samples_ == 0) return;
  const auto count = static_cast<double>(std::exchange(dropped_samples_, 0));
  batch.metrics["async/dropped_response_length/mean"] = std::exchange(dropped_tokens_, 0) / count;
  batch.metrics["async/dropped_reward/mean"] = std::exchange(dropped_reward_, 0) / count;
}

int64_t StalenessQueue::FirstOpen(int64_t next) const {
  if (!running_.empty()) next = std::min(next, *running_.begin());
  if (!ready_.empty()) next = std::min(next, ready_.begin()->first);
  return next;
}

}  // namespace tandem::driver
