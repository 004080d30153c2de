// Generation: the batch of one step being sampled in the background, from the drawing of its
// prompts to the last completion. What is finished can be seen while the rest goes on, so that a
// checkpoint keeps it.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_GENERATION_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_GENERATION_H_

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "tandem/driver/v1/driver_state.pb.h"
#include "tandem/rollout/v1/rollout_service.pb.h"
#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/rollout_fleet.h"

namespace tandem::driver {

struct GenerationOptions {
  int64_t step = 0;
  std::vector<Prompt> prompts;
  // Where the data set stood before these prompts were drawn.
  int64_t prompt_position = 0;
  rollout::v1::SamplingParams params;
  // What a checkpoint has of this step; null: nothing. Only the other prompts are sampled.
  const v1::Generation* restored = nullptr;
  std::function<void(int64_t)> on_tokens;
};

// Used by one thread. Destroyed early, it waits for the rollouts' answers.
class Generation {
 public:
  // FAILED_PRECONDITION where what was restored does not belong to the prompts. `fleet` outlives
  // it.
  static absl::StatusOr<std::unique_ptr<Generation>> Start(RolloutFleet& fleet,
                                                           GenerationOptions options);
  ~Generation();

  int64_t step() const { return step_; }
  int64_t prompt_position() const { return prompt_position_; }
  // Prompts that a checkpoint had taken and whose samples it did not have.
  int64_t num_regenerated() const { return num_regenerated_; }

  void Wait() { groups_.wait(); }
  // The groups in the order of the prompts. Once.
  absl::StatusOr<std::vector<Group>> Take() { return groups_.get(); }

  // The groups that are whole by now.
  v1::Generation Finished() const;

 private:
  Generation() = default;

  int64_t step_ = 0;
  int64_t prompt_position_ = 0;
  int64_t num_regenerated_ = 0;
  int64_t num_prompts_ = 0;
  mutable absl::Mutex mu_;
  std::map<int64_t, v1::FinishedGroup> finished_ ABSL_GUARDED_BY(mu_);  // by place
  std::future<absl::StatusOr<std::vector<Group>>> groups_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_GENERATION_H_
