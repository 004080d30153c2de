// GroupQueue: the groups of mode async between the data set and the trainer: how many more may
// start, which are ready, and which are stale.
//
//   while (queue.capacity() > 0) queue.Begin(place++);   // and samples it
//   queue.Finish(place, group);
//   if (auto batch = queue.Take(version); batch.has_value()) {
//     Train(*batch);
//     queue.StepDone();
//   }
//
// The rule is AReaL's (2505.24298, 5.1): at the trainer's step v, at most (max_staleness + v + 1)
// batches have been started and not dropped. So groups that train in the order of their start lag
// by at most max_staleness versions; with 0, sampling and training alternate.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_GROUP_QUEUE_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_GROUP_QUEUE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "tools/tandem/driver/completion.h"

namespace tandem::driver {

// Not thread-safe. A place is the position of a group's prompt in the data set's order, counted
// over all epochs.
class GroupQueue {
 public:
  struct Options {
    int64_t batch_size = 1;  // groups of one step
    int64_t max_staleness = 0;
    int64_t max_running = 0;  // groups that are sampled at once; 0: no further limit
    int64_t num_batches = 0;  // total that Take() will return
    bool drops_stale = true;  // otherwise stale groups train
  };

  explicit GroupQueue(const Options& options) : options_(options) {}

  // How many groups may start now.
  int64_t capacity() const;

  void Begin(int64_t place);
  // The group is complete, judged, and fit for training.
  void Finish(int64_t place, Group group);
  // The group has no learning signal, or was finished before the run resumed: another may start.
  void Drop(int64_t place);

  // Takes the `batch_size` groups with the smallest places that lag behind `version` by at most
  // max_staleness. With drops_stale, drops the stale groups; otherwise takes them too. nullopt if
  // there are too few.
  std::optional<std::vector<Group>> Take(int64_t version);
  // Call after training on the taken batch and publishing its weights.
  void StepDone() { in_training_ = 0; }

  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_ready() const { return static_cast<int64_t>(ready_.size()); }
  // Number of stale groups since the last call, dropped or taken.
  int64_t TakeNumStale();

  const std::map<int64_t, Group>& ready() const { return ready_; }
  // The first unfinished place; `next` if all places before it are finished.
  int64_t FirstOpen(int64_t next) const;
  // The finished places from FirstOpen() to `next`.
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
