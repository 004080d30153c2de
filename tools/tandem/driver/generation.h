// Generation: collects the batch of one step in the background, from drawing its prompts to the
// last reward. Finished() returns the complete groups meanwhile, so that a checkpoint keeps them.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_GENERATION_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_GENERATION_H_

#include <atomic>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tandem/driver/v1/driver_state.pb.h"
#include "tools/tandem/driver/batch_collector.h"
#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/rollout_fleet.h"

namespace tandem::driver {

struct GenerationOptions {
  int64_t step = 0;
  // Position of the data set before the step's prompts are drawn.
  int64_t prompt_position = 0;
  // State of this step from a checkpoint; null: none. Only its missing prompts are sampled.
  const v1::Generation* restored = nullptr;
  BatchCollector::Generate sample;
};

// Used by one thread. If destroyed early, waits for the outstanding samples.
class Generation {
 public:
  // `collector` and the restored state must outlive it. Until Take() it has exclusive use of the
  // collector and of the objects that the collector uses.
  static std::unique_ptr<Generation> Start(BatchCollector& collector, GenerationOptions options);
  ~Generation();

  int64_t step() const { return options_.step; }
  int64_t prompt_position() const { return options_.prompt_position; }

  // Waits up to `timeout`; returns whether the batch is ready.
  bool WaitFor(absl::Duration timeout) {
    return batch_.wait_for(absl::ToChronoNanoseconds(timeout)) == std::future_status::ready;
  }
  // Waits for the batch. Call once. Errors: those of the collector; FAILED_PRECONDITION if the
  // restored state does not match the prompts.
  absl::StatusOr<StepBatch> Take() { return batch_.get(); }

  // Prompts that the checkpoint had drawn but had no samples of. Call after Take().
  int64_t num_regenerated() const;
  // The groups that are complete by now.
  v1::Generation Finished() const;

 private:
  explicit Generation(GenerationOptions options);

  // Samples the prompts that were not restored. Runs on the future's thread.
  absl::StatusOr<std::vector<Group>> Sample(std::vector<Prompt> prompts,
                                            RolloutFleet::GenerateOptions sampling);

  const GenerationOptions options_;
  std::map<int64_t, const v1::FinishedGroup*> restored_;  // by place
  std::atomic<bool> abandoned_{false};                    // start no further batch
  mutable absl::Mutex mu_;
  int64_t num_prompts_ ABSL_GUARDED_BY(mu_) = 0;  // drawn by now
  int64_t num_regenerated_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int64_t, v1::FinishedGroup> finished_ ABSL_GUARDED_BY(mu_);  // by place
  std::future<absl::StatusOr<StepBatch>> batch_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_GENERATION_H_
