#include "tools/tandem/driver/group_queue.h"

#include "tools/tandem/driver/staleness_queue.h"
#include "tools/tandem/driver/step_queue.h"

namespace tandem::driver {

std::unique_ptr<GroupQueue> MakeGroupQueue(const config::v1::RunConfig& config, int64_t first_step,
                                           int64_t num_batches) {
  const config::v1::FilterGroupsConfig& filter = config.algorithm().filter_groups();
  const int64_t batch_size = config.data().train_batch_size();
  if (config.trainer().mode() == config::v1::TRAINING_MODE_ASYNC) {
    return std::make_unique<StalenessQueue>(StalenessQueue::Options{
        .batch_size = batch_size,
        .max_staleness = config.trainer().max_staleness(),
        .max_running = config.rollout().max_concurrent_groups(),
        .first_step = first_step,
        .num_batches = num_batches,
        .waits = config.trainer().stale_samples() == config::v1::STALE_SAMPLES_WAIT,
        .drops_stale = config.trainer().stale_samples() == config::v1::STALE_SAMPLES_DROP,
        .filters = filter.enable(),
        .max_filtered = filter.max_num_gen_batches() * batch_size});
  }
  const bool has_size = filter.enable() && config.data().gen_batch_size() > 0;
  return std::make_unique<StepQueue>(
      StepQueue::Options{.first_step = first_step,
                         .batch_size = batch_size,
                         .gen_batch_size = has_size ? config.data().gen_batch_size() : batch_size,
                         .filters = filter.enable(),
                         .max_gen_batches = filter.max_num_gen_batches()});
}

}  // namespace tandem::driver
