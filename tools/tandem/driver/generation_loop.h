// GenerationLoop: the source of the trainer's batches in every mode: draws prompts, plays the
// episodes of their groups, judges them, and hands out batches while others train. The modes differ
// in the GroupQueue only.
//
//   GenerationLoop generation(options);
//   ASSIGN_OR_RETURN(StepBatch batch, generation.Take(step, version, look));
//   TrainAndPublish(batch);
//   generation.OpenStep();
//
// A group passes through four hands. When the queue has room, the loop's thread draws a prompt and
// begins its episodes. The sampler's threads deliver completions. A thread of a pool asks the
// episodes for later turns, judges the group, and has the teachers, if any, score it. The queue keeps it until Take(). So a slow reward
// delays only its own group, as long as the pool has a free thread; a slow environment delays only
// its own, for no thread waits for it.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_GENERATION_LOOP_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_GENERATION_LOOP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/telemetry/trace_context.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tandem/driver/v1/driver_state.pb.h"
#include "tools/tandem/driver/driver_state.h"
#include "tools/tandem/driver/episode.h"
#include "tools/tandem/driver/group_queue.h"
#include "tools/tandem/driver/group_run.h"
#include "tools/tandem/driver/prompt_source.h"
#include "tools/tandem/driver/rewarder.h"
#include "tools/tandem/driver/task_pool.h"
#include "tools/tandem/driver/teachers.h"

namespace tandem::driver {

// Call the public methods from one thread. The lock is never held while it calls the sampler, an
// episode or the rewarder.
class GenerationLoop {
 public:
  // All references must outlive the loop, which has exclusive use of the prompts.
  struct Options {
    const config::v1::RunConfig& config;
    PromptSource& prompts;
    Rewarder& rewarder;
    Sampler sampler;
    EpisodeFactory make_episode = MakeSingleTurnEpisode;
    Teachers* teachers = nullptr;  // null: none
    int64_t first_step = 1;
    int64_t num_batches = 0;  // total that Take() will return
    // State from a checkpoint, whose prompts begin at the data set's current position; null: none.
    // Its groups are judged, not sampled again.
    const v1::Generation* restored = nullptr;
    int64_t policy_version = 0;     // the trainer's current version
    telemetry::TraceContext trace;  // of the first step; see OpenStep()
    std::function<void(int64_t)> on_tokens;
    // Once it returns true no more groups begin, and Take() fails with CANCELLED. Unset: never.
    std::function<bool()> interrupted;
  };

  // Opens the first step.
  explicit GenerationLoop(Options options);
  // Cancels the requests and waits for running work. Requests end soon, judging by the reward's
  // deadline.
  ~GenerationLoop();

  // Waits for the batch of step `step`, for a trainer at `version`. While it waits it calls `look`
  // periodically; an error of `look` ends the wait. Adds to the queue's metrics timing_s/reward,
  // the seconds in which groups were judged and none was sampled, and those of
  // AddOverlongMetrics(), AddPartScoreMetrics() and AddEpisodeMetrics(), with teachers
  // timing_s/teacher (Teachers::TakeSeconds(); scoring is part of judging), in runs of several turns
  // environment/{retried_episodes,dropped_groups,discarded_tokens} since the last batch, and with
  // judges and reward models reward/{failed_judgements,dropped_groups}. Errors: of the sampler, the
  // episodes, the rewarder, the teachers and the queue; ABORTED if the environment loses many groups
  // one after another; the judge's error if it fails for as many groups, one after another, as a step
  // has;
  // FAILED_PRECONDITION if the restored state belongs to other data. A group's error fails the
  // Take() that follows it.
  absl::StatusOr<StepBatch> Take(int64_t step, int64_t version,
                                 const std::function<absl::Status()>& look);
  // Waits until Take() need not wait. Returns errors of `look` only.
  absl::Status WaitForBatch(const std::function<absl::Status()>& look);

  // Lets the groups of one more step begin: at once in mode one_step_off, after the step has
  // trained and its weights are published in the others. If `trace` is valid, requests and
  // judgements of the groups that begin from now on belong to it.
  void OpenStep(const telemetry::TraceContext& trace = {});

  // Returns the open groups for a checkpoint after the step before `next_step`, for a trainer at
  // `version`: those that are complete with their samples, so that a resumed run judges them and
  // samples the others.
  Ahead Save(int64_t next_step, int64_t version) const;

  // Prompts that the checkpoint had drawn but had no samples of.
  int64_t num_regenerated() const;

 private:
  // Groups that began together, for the trace.
  struct Wave;

  void Loop();
  // Draws as many prompts as there is room for and begins their groups.
  void BeginGroups();
  int64_t Room() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<GroupRun> MakeRun(int64_t place, Prompt prompt, const GroupSeed& seed,
                                    const std::shared_ptr<Wave>& wave);
  absl::Status Restore(int64_t place, Prompt prompt, const v1::FinishedGroup& saved,
                       const telemetry::TraceContext& trace) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnPlayed(int64_t place, Wave& wave, absl::StatusOr<Group> group);
  void Judge(int64_t place, Group group, const telemetry::TraceContext& trace);
  void OnLost(const LostEpisode& episode);
  // An episode of the group at `place` is lost for good.
  void DropGroup(int64_t place, const absl::Status& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A judge or a reward model failed for a group, which holds why.
  void DropUnjudged(int64_t place, const Group& group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddLossMetrics(Metrics& metrics) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Keeps the first error.
  void Fail(absl::Status error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Call before a change of num_playing_ or num_judging_.
  void CountJudgingTime() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits for a change of what Take() waits for, or for kPollInterval.
  void AwaitChange() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  const Sampler sampler_;  // counts the requests
  const bool is_continuous_;
  const int64_t first_place_;
  const int64_t version_shift_;
  std::set<int64_t> restored_done_;

  mutable absl::Mutex mu_;
  std::unique_ptr<GroupQueue> queue_ ABSL_GUARDED_BY(mu_);
  int64_t next_place_ ABSL_GUARDED_BY(mu_);
  // Groups of the checkpoint that may be restored, by place.
  std::map<int64_t, const v1::FinishedGroup*> restored_ ABSL_GUARDED_BY(mu_);
  // The complete groups as a checkpoint keeps them, by place: those of open places, and those of
  // the loaded checkpoint whose prompts are still to be drawn.
  std::map<int64_t, v1::FinishedGroup> finished_ ABSL_GUARDED_BY(mu_);
  std::map<int64_t, std::shared_ptr<GroupRun>> runs_ ABSL_GUARDED_BY(mu_);  // by place
  telemetry::TraceContext trace_ ABSL_GUARDED_BY(mu_);
  int64_t num_regenerated_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t num_requests_ ABSL_GUARDED_BY(mu_) = 0;  // of the sampler, unfinished
  int64_t num_playing_ ABSL_GUARDED_BY(mu_) = 0;   // groups
  int64_t num_judging_ ABSL_GUARDED_BY(mu_) = 0;   // groups, those that wait for a thread included
  int64_t num_changes_ ABSL_GUARDED_BY(mu_) = 0;   // of the state that Take() waits for
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;
  double judging_seconds_ ABSL_GUARDED_BY(mu_) = 0;  // since the last batch
  absl::Time counted_until_ ABSL_GUARDED_BY(mu_) = absl::Now();
  // Since the last batch.
  int64_t num_retried_episodes_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t num_discarded_tokens_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t num_dropped_groups_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t num_failed_judgements_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t num_unjudged_groups_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t num_dropped_in_a_row_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t num_unjudged_in_a_row_ ABSL_GUARDED_BY(mu_) = 0;
  // Shared with the groups: an environment may answer an episode after the loop has ended.
  const std::shared_ptr<TaskPool> pool_;
  std::thread thread_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_GENERATION_LOOP_H_
