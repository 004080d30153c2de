// BatchCollector: makes the groups of one training step: takes prompts, has them sampled and
// judged, and with dynamic sampling goes on until enough groups can teach something.
//
//   BatchCollector collector(config, prompts, rewarder, interrupted);
//   ASSIGN_OR_RETURN(StepBatch batch, collector.Collect(step, generate));
//
// Threads: one call at a time; while it runs, nobody else uses the prompts and the rewarder.
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

// The groups of a step, judged, and how they came to be.
struct StepBatch {
  std::vector<Group> groups;
  // timing_s/gen and timing_s/reward (seconds spent, whoever waited for them);
  // train/num_gen_batches; rollout/{dropped,filtered,surplus}_groups; rollout/judged_reward/mean
  // over all groups that were judged; those of AddOverlongMetrics.
  Metrics metrics;
};

// How the completions of batch `batch` of a step are sampled.
RolloutFleet::GenerateOptions TrainGenerateOptions(const config::v1::RunConfig& config,
                                                   int64_t step, int64_t batch);

class BatchCollector {
 public:
  using Generate = std::function<absl::StatusOr<std::vector<Group>>(
      std::vector<Prompt>, const RolloutFleet::GenerateOptions&)>;

  // All outlive it.
  BatchCollector(const config::v1::RunConfig& config, PromptSource& prompts, Rewarder& rewarder,
                 std::function<bool()> interrupted);

  // The groups of step `step`, sampled by `generate`. A group of which a completion was aborted is
  // dropped: it trains whole or not at all.
  //
  // Without algorithm.filter_groups: those of data.train_batch_size prompts; ABORTED where none is
  // left. With it: batches of data.gen_batch_size prompts are sampled until data.train_batch_size
  // groups differ in their metric; FAILED_PRECONDITION after max_num_gen_batches. Groups beyond are
  // dropped and counted, as in verl: in the next step they would be of an older policy.
  // CANCELLED when interrupted; else errors of the generation and of the rewarder.
  absl::StatusOr<StepBatch> Collect(int64_t step, const Generate& generate);

 private:
  // One batch of prompts, sampled, judged, and without groups that were aborted.
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
