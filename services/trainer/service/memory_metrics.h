// Memory use of a rank, as metrics.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_MEMORY_METRICS_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_MEMORY_METRICS_H_

#include "services/trainer/algorithm/update_statistics.h"
#include "services/trainer/fsdp/sharded_model.h"
#include "services/trainer/optim/optimizer.h"

namespace tandem::trainer {

// Sets, in bytes of this rank:
//   perf/parameter_bytes, perf/gradient_bytes, perf/optimizer_bytes: shards, wherever they rest
//   perf/reference_bytes: shards of the reference, if there is one
//   perf/offloaded_bytes: how much of all these rests in host memory (GPU ranks) or in files
//   perf/buffer_bytes: gathered units and gradients in transit, peak
//   perf/peak_tensor_bytes: peak of the device's tensors, without offloaded ones
//   perf/activation_bytes: the part of that peak that none of the above explains
//   perf/peak_rss_bytes: peak resident set of the process, file pages included
// `reference` may be null.
void AddMemoryMetrics(const ShardedModel& policy, const ShardedModel* reference,
                      const Optimizer& optimizer, Metrics& metrics);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_MEMORY_METRICS_H_
