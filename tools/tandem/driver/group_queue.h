// GroupQueue: the groups of mode async between the data set and the trainer: how many more may be
// begun, which wait, and which are too old by now.
//
//   while (queue.capacity() > 0) { queue.Begin(place); ... }
//   queue.Finish(place, group);
//   if (auto batch = queue.Take(version)) { ... train, publish ... queue.StepDone(); }
//
// The rule is AReaL's (2505.24298, 5.1): at the trainer's step v (max_staleness + v + 1) batches
// have been begun and not dropped, at most. So a group that is trained on in the order in which it
// was begun lags by max_staleness versions at most; with 0, sampling and training take turns.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_GROUP_QUEUE_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_GROUP_QUEUE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "tools/tandem/driver/completion.h"

namespace tandem::driver {

// Not thread-safe. A place is a group's prompt's position in the data set's order, over all epochs.
class GroupQueue {
 public:
  struct Options {
    int64_t batch_size = 1;  // groups of one step
    int64_t max_staleness = 0;
    int64_t max_running = 0;  // groups that are sampled at once; 0: no limit of its own
    int64_t num_batches = 0;  // that will be taken
    bool drops_stale = true;  // else they are trained on
  };

  explicit GroupQueue(const Options& options) : options_(options) {}

  // Groups that may be begun now.
  int64_t capacity() const;

  void Begin(int64_t place);
  // It is whole, judged, and fit to train on.
  void Finish(int64_t place, Group group);
  // It teaches nothing, or was done with before the run was resumed: another may be begun.
  void Drop(int64_t place);

  // The oldest `batch_size` groups, by place, of those that do not lag behind `version` by more
  // than max_staleness; the others are dropped, or not, as the options say. Nothing where there are
  // too few.
  std::optional<std::vector<Group>> Take(int64_t version);
  // The batch that was taken is trained on and its weights are published.
  void StepDone() { in_training_ = 0; }

  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_ready() const { return static_cast<int64_t>(ready_.size()); }
  // Too old, since the last call: dropped, or trained on all the same.
  int64_t TakeNumStale();

  const std::map<int64_t, Group>& ready() const { return ready_; }
  // The first place that is not done with; `next` where there is none before it.
  int64_t FirstOpen(int64_t next) const;
  // Places from FirstOpen() to `next` that are done with.
  std::vector<int64_t> DonePlaces(int64_t next) const;

 private:
  const Options options_;
  std::set<int64_t> running_;
  std::map<int64_t, Group> ready_;
  int64_t in_training_ = 0;
  int64_t num_taken_ = 0;  // batches
  int64_t num_stale_ = 0;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_GROUP_QUEUE_H_
