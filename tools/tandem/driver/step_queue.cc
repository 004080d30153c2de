#include "tools/tandem/driver/step_queue.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tandem::driver {

int64_t StepQueue::capacity() const {
  if (!is_open_) return 0;
  if (!is_whole()) return options_.gen_batch_size - num_begun_ % options_.gen_batch_size;
  if (num_begun_ == 0) return options_.gen_batch_size;
  const bool needs_another = is_settled() && !has_enough() && !last_batch_is_lost();
  return needs_another && may_begin_another() ? options_.gen_batch_size : 0;
}

GroupSeed StepQueue::Begin(int64_t place) {
  if (num_begun_ == 0) first_place_ = place;
  const int64_t within = num_begun_++;
  running_.insert(place);
  return {.step = step_, .batch = within / options_.gen_batch_size, .place = within};
}

void StepQueue::Finish(int64_t place, Group group, bool differs) {
  running_.erase(place);
  Judged& judged = judged_[place];
  judged.mean_reward = group.mean_reward();
  if (!differs) return;
  judged.group = std::move(group);
  ++num_differ_;
}

void StepQueue::Abort(int64_t place) { running_.erase(place); }

bool StepQueue::last_batch_is_lost() const {
  return judged_.empty() ||
         judged_.rbegin()->first < first_place_ + num_begun_ - options_.gen_batch_size;
}

bool StepQueue::HasBatch() const {
  return is_settled() && (has_enough() || last_batch_is_lost() || !may_begin_another());
}

absl::StatusOr<std::optional<StepBatch>> StepQueue::Take(int64_t /*version*/) {
  if (!HasBatch()) return std::nullopt;
  if (last_batch_is_lost()) {
    return absl::AbortedError(absl::StrCat("step ", step_, ": every group was aborted"));
  }
  if (!has_enough()) return TooFewGroups();
  return Assemble();
}

StepBatch StepQueue::Assemble() {
  StepBatch out;
  double reward_sum = 0;
  int64_t num_surplus = 0;
  for (auto& [place, judged] : judged_) {
    reward_sum += judged.mean_reward;
    if (!judged.group.has_value()) continue;
    if (static_cast<int64_t>(out.groups.size()) == options_.batch_size) {
      ++num_surplus;
    } else {
      out.groups.push_back(*std::move(judged.group));
    }
  }
  const auto num_judged = static_cast<int64_t>(judged_.size());
  out.metrics["rollout/judged_reward/mean"] = reward_sum / static_cast<double>(num_judged);
  out.metrics["rollout/dropped_groups"] = static_cast<double>(num_begun_ - num_judged);
  if (options_.filters) {
    out.metrics["train/num_gen_batches"] = static_cast<double>(num_gen_batches());
    out.metrics["rollout/filtered_groups"] = static_cast<double>(num_judged - num_differ_);
    out.metrics["rollout/surplus_groups"] = static_cast<double>(num_surplus);
  }
  judged_.clear();
  num_begun_ = num_differ_ = 0;
  is_open_ = false;
  return out;
}

void StepQueue::OpenStep() {
  ++step_;
  is_open_ = true;
}

absl::Status StepQueue::TooFewGroups() const {
  return absl::FailedPreconditionError(absl::StrFormat(
      "step %d: expected %d groups whose rewards differ (data.train_batch_size); found %d in %d "
      "batches, algorithm.filter_groups.max_num_gen_batches, and %d whose rewards are all equal. "
      "The prompts are too easy or too hard for the policy: give other data, a larger rollout.n or "
      "rollout.temperature, or more batches (0 generates without end)",
      step_, options_.batch_size, num_differ_, num_gen_batches(),
      static_cast<int64_t>(judged_.size()) - num_differ_));
}

}  // namespace tandem::driver
