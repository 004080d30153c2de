// GroupQueue: which groups may begin ahead of the trainer, and which of the judged ones make the
// next batch. StepQueue serves `sync` and `one_step_off`, StalenessQueue serves `async`. When the
// next step opens is for ReinforcementLoop to say.
//
//   while (queue.capacity() > 0) queue.Begin(place++);   // and samples it
//   queue.Finish(place, group, differs);
//   ASSIGN_OR_RETURN(std::optional<StepBatch> batch, queue.Take(version));
//   if (batch.has_value()) {
//     Train(*batch);
//     queue.OpenStep();
//   }
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_GROUP_QUEUE_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_GROUP_QUEUE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/run_folder.h"

namespace tandem::driver {

// The judged groups of a step, with the metrics of their collection.
struct StepBatch {
  std::vector<Group> groups;
  Metrics metrics;
};

// With the configured seed it determines the seed of a group's samples. GenerationLoop mixes in step
// and batch, RolloutFleet::Start() the place of the prompt, and the rollout's sampler
// (services/rollout/sampler/uniform.h) the sample's index and the token's position.
struct GroupSeed {
  int64_t step = 0;
  int64_t batch = 0;  // of the step: dynamic sampling generates one after another
  int64_t place = 0;

  friend bool operator==(const GroupSeed&, const GroupSeed&) = default;
};

// Not thread-safe. A place is the position of a group's prompt in the data set's order, counted
// over all epochs. The first step is open from the start.
class GroupQueue {
 public:
  virtual ~GroupQueue() = default;

  // How many groups may begin now; 0 after an error.
  virtual int64_t capacity() const = 0;

  // Places come in ascending order. In mode async a resumed run begins the groups of its checkpoint
  // even without capacity.
  virtual GroupSeed Begin(int64_t place) = 0;
  // The group is complete and judged. `differs`: it has a learning signal.
  virtual void Finish(int64_t place, Group group, bool differs) = 0;
  // A completion of the group was aborted.
  virtual void Abort(int64_t place) = 0;
  // The environment lost an episode of the group. It does not train, and another may begin.
  virtual void Drop(int64_t place) = 0;

  // Returns the batch of the open step, for a trainer at `version`; nullopt if it is not complete
  // yet. Every batch has rollout/judged_reward/mean: the mean over all judged groups. Errors:
  // FAILED_PRECONDITION if dynamic sampling finds too few groups that differ; see the queues.
  virtual absl::StatusOr<std::optional<StepBatch>> Take(int64_t version) = 0;
  // Whether Take() has a batch, stale groups aside, or an error.
  virtual bool HasBatch() const = 0;
  // Makes room for the groups of one more step.
  virtual void OpenStep() = 0;

  // Whether the group at `place` has begun and is neither taken nor dropped.
  virtual bool IsOpen(int64_t place) const = 0;
  // The first open place; `next` if there is none.
  virtual int64_t FirstOpen(int64_t next) const = 0;
};

// The queue of trainer.mode, for `num_batches` batches from step `first_step` on.
std::unique_ptr<GroupQueue> MakeGroupQueue(const config::v1::RunConfig& config, int64_t first_step,
                                           int64_t num_batches);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_GROUP_QUEUE_H_
