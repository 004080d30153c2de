// BatchCollector: collects the groups of one training step: draws prompts, has them sampled and
// judged, and with dynamic sampling repeats this until enough groups have a learning signal.
//
//   BatchCollector collector(config, prompts, rewarder, interrupted);
//   ASSIGN_OR_RETURN(StepBatch batch, collector.Collect(step, generate));
//
// Threads: one call at a time, with exclusive use of the prompts and the rewarder.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_BATCH_COLLECTOR_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_BATCH_COLLECTOR_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/prompt_source.h"
#include "tools/tandem/driver/rewarder.h"
#include "tools/tandem/driver/rollout_fleet.h"
#include "tools/tandem/driver/run_folder.h"

namespace tandem::driver {

// The judged groups of a step, with the metrics of their collection.
struct StepBatch {
  std::vector<Group> groups;
  // timing_s/gen and timing_s/reward (seconds of work, whether or not the trainer waited);
  // train/num_gen_batches; rollout/{dropped,filtered,surplus}_groups; rollout/judged_reward/mean
  // over all judged groups; the metrics of AddOverlongMetrics().
  Metrics metrics;
};

// Returns the sampling options of batch `batch` of a step.
RolloutFleet::GenerateOptions TrainGenerateOptions(const config::v1::RunConfig& config,
                                                   int64_t step, int64_t batch);

class BatchCollector {
 public:
  using Generate = std::function<absl::StatusOr<std::vector<Group>>(
      std::vector<Prompt>, const RolloutFleet::GenerateOptions&)>;

  // All arguments must outlive the collector.
  BatchCollector(const config::v1::RunConfig& config, PromptSource& prompts, Rewarder& rewarder,
                 std::function<bool()> interrupted);

  // Returns the groups of step `step`, sampled by `generate`. Drops a group if one of its
  // completions was aborted: only complete groups train.
  //
  // Without algorithm.filter_groups: samples data.train_batch_size prompts; ABORTED if no group is
  // left. With it: samples batches of data.gen_batch_size prompts until data.train_batch_size
  // groups differ in their metric; FAILED_PRECONDITION after max_num_gen_batches. Surplus groups
  // are dropped and counted, as in verl: the next step would find them one version older.
  // CANCELLED when interrupted; else errors of the generation and of the rewarder.
  absl::StatusOr<StepBatch> Collect(int64_t step, const Generate& generate);

 private:
  // Samples and judges one batch of prompts; drops aborted groups.
  absl::StatusOr<std::vector<Group>> SampleAndJudge(const Generate& generate, int64_t step,
                                                    int64_t batch, int64_t num_prompts,
                                                    Metrics& metrics);

  const config::v1::RunConfig& config_;
  PromptSource& prompts_;
  Rewarder& rewarder_;
  const std::function<bool()> interrupted_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_BATCH_COLLECTOR_H_
