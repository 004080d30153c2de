// Generation: the batch of one step being made in the background, from the drawing of its prompts
// to the last reward. What is sampled can be seen while the rest goes on, so that a checkpoint
// keeps it.
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
  // Where the data set stands before the step's prompts are drawn.
  int64_t prompt_position = 0;
  // What a checkpoint has of this step; null: nothing. Only the other prompts are sampled.
  const v1::Generation* restored = nullptr;
  BatchCollector::Generate sample;
};

// Used by one thread. Destroyed early, it waits for the rollouts' answers.
class Generation {
 public:
  // `collector` and what was restored outlive it; until Take() nobody else uses the collector and
  // what that uses.
  static std::unique_ptr<Generation> Start(BatchCollector& collector, GenerationOptions options);
  ~Generation();

  int64_t step() const { return options_.step; }
  int64_t prompt_position() const { return options_.prompt_position; }

  // Whether the batch is there, after `timeout` at the latest.
  bool WaitFor(absl::Duration timeout) {
    return batch_.wait_for(absl::ToChronoNanoseconds(timeout)) == std::future_status::ready;
  }
  // Errors of the collector; FAILED_PRECONDITION where what was restored does not belong to the
  // prompts. Once.
  absl::StatusOr<StepBatch> Take() { return batch_.get(); }

  // Prompts that a checkpoint had taken and whose samples it did not have. After Take().
  int64_t num_regenerated() const;
  // The groups that are whole by now.
  v1::Generation Finished() const;

 private:
  explicit Generation(GenerationOptions options);

  // Samples the prompts that were not restored. On the thread of the future.
  absl::StatusOr<std::vector<Group>> Sample(std::vector<Prompt> prompts,
                                            RolloutFleet::GenerateOptions sampling);

  const GenerationOptions options_;
  std::map<int64_t, const v1::FinishedGroup*> restored_;  // by place
  std::atomic<bool> abandoned_{false};                    // no further batch is begun
  mutable absl::Mutex mu_;
  int64_t num_prompts_ ABSL_GUARDED_BY(mu_) = 0;  // drawn by now
  int64_t num_regenerated_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int64_t, v1::FinishedGroup> finished_ ABSL_GUARDED_BY(mu_);  // by place
  std::future<absl::StatusOr<StepBatch>> batch_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_GENERATION_H_
