// StepQueue: the groups of the modes sync and one_step_off: one step at a time, in whole batches of
// prompts. Without dynamic sampling a step has one batch. With it, batches follow one another until
// enough groups have a learning signal.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_STEP_QUEUE_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_STEP_QUEUE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "tools/tandem/driver/group_queue.h"

namespace tandem::driver {

// The contents of a batch follow from its groups' places, never from the order in which they end.
// Seeds derive from the step, the batch within the step, and the place within the step.
class StepQueue : public GroupQueue {
 public:
  struct Options {
    int64_t first_step = 1;
    int64_t batch_size = 1;       // groups of one step
    int64_t gen_batch_size = 1;   // prompts that begin together
    bool filters = false;         // dynamic sampling
    int64_t max_gen_batches = 0;  // of a step, with dynamic sampling; 0: no limit
  };

  explicit StepQueue(const Options& options) : options_(options), step_(options.first_step) {}

  // The rest of the batch that has begun; a whole one if the step needs another.
  int64_t capacity() const override;
  GroupSeed Begin(int64_t place) override;
  void Finish(int64_t place, Group group, bool differs) override;
  // Drops the group: only complete groups train.
  void Abort(int64_t place) override;
  // The batch is smaller by one group, or with dynamic sampling lacks one more.
  void Drop(int64_t place) override { Abort(place); }

  // Takes the step's groups that differ, in the order of their places, and closes the step. Surplus
  // groups, those with the largest places, are dropped and counted, as in verl: the next step would
  // find them one version older. Metrics: rollout/dropped_groups; with `filters`
  // train/num_gen_batches, rollout/{filtered,surplus}_groups. ABORTED if all groups of a batch were
  // aborted.
  absl::StatusOr<std::optional<StepBatch>> Take(int64_t version) override;
  bool HasBatch() const override;
  // Begins the next step. The batch of the last one has been taken.
  void OpenStep() override;

  bool IsOpen(int64_t place) const override {
    return num_begun_ > 0 && place >= first_place_ && place < first_place_ + num_begun_;
  }
  int64_t FirstOpen(int64_t next) const override { return num_begun_ > 0 ? first_place_ : next; }

 private:
  struct Judged {
    double mean_reward = 0;
    std::optional<Group> group;  // unset: without a learning signal
  };

  // Batches of prompts that have begun.
  int64_t num_gen_batches() const {
    return (num_begun_ + options_.gen_batch_size - 1) / options_.gen_batch_size;
  }
  bool is_whole() const { return num_begun_ % options_.gen_batch_size == 0; }
  // Whether every group that began has been judged or aborted, and the batches are whole.
  bool is_settled() const { return num_begun_ > 0 && is_whole() && running_.empty(); }
  bool has_enough() const { return !options_.filters || num_differ_ >= options_.batch_size; }
  bool may_begin_another() const {
    return options_.max_gen_batches == 0 || num_gen_batches() < options_.max_gen_batches;
  }
  // Whether the last batch of prompts has no judged group.
  bool last_batch_is_lost() const;
  absl::Status TooFewGroups() const;
  StepBatch Assemble();

  const Options options_;
  int64_t step_;
  bool is_open_ = true;
  // State of the open step.
  int64_t first_place_ = 0;
  int64_t num_begun_ = 0;
  std::set<int64_t> running_;
  std::map<int64_t, Judged> judged_;
  int64_t num_differ_ = 0;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_STEP_QUEUE_H_
