// ContinuousGeneration: groups sampled and judged without pause while others are trained on: the
// source of batches of mode async.
//
//   ContinuousGeneration generation(options);
//   ASSIGN_OR_RETURN(StepBatch batch, generation.Take(step, version, look));
//   ... train, publish ...
//   generation.StepDone();
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_CONTINUOUS_GENERATION_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_CONTINUOUS_GENERATION_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tandem/driver/v1/driver_state.pb.h"
#include "tools/tandem/driver/batch_collector.h"
#include "tools/tandem/driver/group_queue.h"
#include "tools/tandem/driver/prompt_source.h"
#include "tools/tandem/driver/rewarder.h"
#include "tools/tandem/driver/rollout_fleet.h"

namespace tandem::driver {

// What it works with; everything outlives it, and nobody else uses the prompts.
struct ContinuousGenerationOptions {
  const config::v1::RunConfig& config;
  PromptSource& prompts;
  Rewarder& rewarder;
  RolloutFleet& fleet;
  int64_t num_batches = 0;  // that will be taken
  // What a checkpoint has; null: nothing. Its prompts begin where the data set stands.
  const v1::Generation* restored = nullptr;
  int64_t policy_version = 0;  // of the trainer, now
  std::function<void(int64_t)> on_tokens;
};

// Take(), StepDone() and Finished() are called from one thread; a thread of its own begins groups
// as GroupQueue's rule allows, and judges them.
class ContinuousGeneration {
 public:
  explicit ContinuousGeneration(const ContinuousGenerationOptions& options);
  // Ends what is being sampled and waits for it.
  ~ContinuousGeneration();

  // The batch of step `step`, for a trainer at `version`; waits for it. `look` is called now and
  // then meanwhile, and its error ends the wait. The metrics are those of StepBatch and
  // async/{running_groups,ready_groups} as of its return, async/dropped_groups (or
  // async/stale_groups, where they are trained on) since the last batch. Errors: of the fleet and
  // of the rewarder; FAILED_PRECONDITION where what was restored is of other data, or where dynamic
  // sampling finds too few groups that can teach something.
  absl::StatusOr<StepBatch> Take(int64_t step, int64_t version,
                                 const std::function<absl::Status()>& look);

  // The batch is trained on and its weights are published as `version`.
  void StepDone(int64_t version);

  // What is whole by now, and what is done with. Its prompts begin at prompt_position().
  v1::Generation Finished(int64_t next_step, int64_t& prompt_position) const;

  // Prompts that a checkpoint had taken and whose samples it did not have.
  int64_t num_regenerated() const;

 private:
  struct Sampled {
    int64_t place = 0;
    absl::StatusOr<Group> group;
  };

  void Loop();
  // Draws a prompt and begins its group. The caller has seen that there is room.
  absl::Status BeginOne();
  absl::Status Judge(std::deque<Sampled> sampled);

  const ContinuousGenerationOptions options_;
  const int64_t first_place_;
  const int64_t version_shift_;
  std::map<int64_t, const v1::FinishedGroup*> restored_;  // by place from first_place_
  std::set<int64_t> restored_done_;

  mutable absl::Mutex mu_;
  GroupQueue queue_ ABSL_GUARDED_BY(mu_);
  std::map<int64_t, Prompt> prompts_ ABSL_GUARDED_BY(mu_);  // of running groups
  std::map<int64_t, std::shared_ptr<RolloutFleet::Run>> runs_ ABSL_GUARDED_BY(mu_);
  std::deque<Sampled> sampled_ ABSL_GUARDED_BY(mu_);
  int64_t next_place_ ABSL_GUARDED_BY(mu_);
  int64_t num_regenerated_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t policy_version_ ABSL_GUARDED_BY(mu_);
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  int64_t num_sampling_ ABSL_GUARDED_BY(mu_) = 0;  // that the fleet works on
  int64_t num_changes_ ABSL_GUARDED_BY(mu_) = 0;   // of what Take() looks at
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;
  // Since the last batch.
  int64_t num_filtered_ ABSL_GUARDED_BY(mu_) = 0;
  double filtered_reward_ ABSL_GUARDED_BY(mu_) = 0;
  double reward_seconds_ ABSL_GUARDED_BY(mu_) = 0;
  std::thread thread_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_CONTINUOUS_GENERATION_H_
