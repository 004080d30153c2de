// ContinuousGeneration: samples and judges groups without pause while others train: the source of
// batches in mode async.
//
//   ContinuousGeneration generation(options);
//   ASSIGN_OR_RETURN(StepBatch batch, generation.Take(step, version, look));
//   ...   // trains, publishes
//   generation.StepDone(version);
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

// All references must outlive it; it has exclusive use of the prompts.
struct ContinuousGenerationOptions {
  const config::v1::RunConfig& config;
  PromptSource& prompts;
  Rewarder& rewarder;
  RolloutFleet& fleet;
  int64_t num_batches = 0;  // total that Take() will return
  // State from a checkpoint; null: none. Its prompts begin at the data set's current position.
  const v1::Generation* restored = nullptr;
  int64_t policy_version = 0;  // the trainer's current version
  std::function<void(int64_t)> on_tokens;
};

// Call Take(), StepDone() and Finished() from one thread. A background thread starts groups as
// GroupQueue's rule allows, and judges them.
class ContinuousGeneration {
 public:
  explicit ContinuousGeneration(const ContinuousGenerationOptions& options);
  // Cancels the running groups and waits for them to end.
  ~ContinuousGeneration();

  // Waits for the batch of step `step`, for a trainer at `version`. Calls `look` periodically
  // while it waits; an error of `look` ends the wait. Metrics: those of StepBatch,
  // async/{running_groups,ready_groups} at return, and async/dropped_groups (or
  // async/stale_groups, if stale groups train) since the last batch. Errors: of the fleet and of
  // the rewarder; FAILED_PRECONDITION if the restored state belongs to other data, or if dynamic
  // sampling finds too few groups with a learning signal.
  absl::StatusOr<StepBatch> Take(int64_t step, int64_t version,
                                 const std::function<absl::Status()>& look);

  // Call after training on the batch and publishing its weights as `version`.
  void StepDone(int64_t version);

  // Returns the complete groups and the finished places, for a checkpoint. Sets `prompt_position`
  // to where its prompts begin.
  v1::Generation Finished(int64_t next_step, int64_t& prompt_position) const;

  // Prompts that the checkpoint had drawn but had no samples of.
  int64_t num_regenerated() const;

 private:
  struct Sampled {
    int64_t place = 0;
    absl::StatusOr<Group> group;
  };

  void Loop();
  // Draws a prompt and starts its group. The caller has checked the queue's capacity.
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
  int64_t num_sampling_ ABSL_GUARDED_BY(mu_) = 0;  // groups that the fleet is sampling
  int64_t num_changes_ ABSL_GUARDED_BY(mu_) = 0;   // changes of the state that Take() waits for
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;
  // Since the last batch.
  int64_t num_filtered_ ABSL_GUARDED_BY(mu_) = 0;
  double filtered_reward_ ABSL_GUARDED_BY(mu_) = 0;
  double reward_seconds_ ABSL_GUARDED_BY(mu_) = 0;
  std::thread thread_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_CONTINUOUS_GENERATION_H_
