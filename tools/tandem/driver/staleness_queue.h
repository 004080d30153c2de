// StalenessQueue: the groups of mode async. Groups begin without pause, bounded by AReaL's rule
// (2505.24298, 5.1): at the trainer's step v, at most (max_staleness + v + 1) batches have begun
// and not been dropped. So groups that train in the order of their beginning lag by at most
// max_staleness versions; with 0, sampling and training alternate.
//
// Groups end out of order, and those that take long would be overtaken until they lag too much.
// Dropping them trains on the short ones only. With `waits`, a group that began at step k is due at
// step k + max_staleness, and Take() waits for running groups as long as taking a batch now would
// leave, for some later step, more groups due than the batches up to that step can hold. Taking the
// oldest first meets every due step: by the rule above, the room always suffices once the groups have ended.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_STALENESS_QUEUE_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_STALENESS_QUEUE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "tools/tandem/driver/group_queue.h"

namespace tandem::driver {

// A group without a learning signal makes room for another. Seeds are those of mode sync without
// dynamic sampling: of the step that would train on the group, and its place in that step's batch.
class StalenessQueue : public GroupQueue {
 public:
  struct Options {
    int64_t batch_size = 1;  // groups of one step
    int64_t max_staleness = 0;
    int64_t max_running = 0;  // groups that are sampled or judged at once; 0: no further limit
    int64_t first_step = 1;
    int64_t num_batches = 0;  // total that Take() will return
    bool waits = false;       // for groups that would become stale
    bool drops_stale = true;  // otherwise stale groups train
    bool filters = false;     // dynamic sampling
    // Groups without a learning signal between two batches, at most; 0: no limit.
    int64_t max_filtered = 0;
  };

  explicit StalenessQueue(const Options& options) : options_(options) {}

  int64_t capacity() const override;
  GroupSeed Begin(int64_t place) override;
  void Finish(int64_t place, Group group, bool differs) override;
  // Take() fails: requests are only aborted when the run ends.
  void Abort(int64_t place) override;
  void Drop(int64_t place) override;

  // Takes the `batch_size` ready groups with the smallest places. With drops_stale it first drops
  // those that lag behind `version` by more than max_staleness; otherwise these train too. Metrics,
  // since the last batch: async/dropped_groups, with length and reward if there are any, or
  // async/stale_groups, and with `filters` rollout/filtered_groups; async/{running,ready}_groups
  // afterwards. CANCELLED after Abort().
  absl::StatusOr<std::optional<StepBatch>> Take(int64_t version) override;
  bool HasBatch() const override {
    return !error_.ok() || (num_ready() >= options_.batch_size && !MustWait());
  }
  // Call after training on the taken batch and publishing its weights.
  void OpenStep() override { ++num_opened_; }

  bool IsOpen(int64_t place) const override {
    return running_.contains(place) || ready_.contains(place);
  }
  int64_t FirstOpen(int64_t next) const override;

 private:
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_ready() const { return static_cast<int64_t>(ready_.size()); }
  // Whether a batch of the groups that are ready would make others miss their due step. Requires a
  // batch that is ready.
  bool MustWait() const;
  void DropStale(int64_t version);
  void AddMetrics(StepBatch& batch);

  const Options options_;
  std::set<int64_t> running_;
  // The last step that may train on a running or ready place, counted as num_opened_.
  std::map<int64_t, int64_t> due_;
  std::map<int64_t, Group> ready_;
  int64_t num_opened_ = 1;  // steps
  int64_t num_taken_ = 0;   // batches
  // Since the last batch.
  int64_t num_stale_ = 0;
  int64_t dropped_samples_ = 0;
  double dropped_tokens_ = 0;
  double dropped_reward_ = 0;
  int64_t num_filtered_ = 0;
  double filtered_reward_ = 0;
  absl::Status error_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_STALENESS_QUEUE_H_
