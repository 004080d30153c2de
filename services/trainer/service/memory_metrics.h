// What a rank's memory holds, as metrics.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_MEMORY_METRICS_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_MEMORY_METRICS_H_

#include "services/trainer/algorithm/update_statistics.h"
#include "services/trainer/fsdp/sharded_model.h"
#include "services/trainer/optim/adamw.h"

namespace tandem::trainer {

// Of this rank, in bytes:
//   perf/parameter_bytes, perf/gradient_bytes, perf/optimizer_bytes  shards, wherever they rest
//   perf/reference_bytes    shards of the reference, where there is one
//   perf/offloaded_bytes    of all these, how much rests in host memory (of a GPU's rank) or in
//   files perf/buffer_bytes       gathered units and gradients on their way, the most at once
//   perf/peak_tensor_bytes  the most that the device's tensors held at once, offloaded ones left
//   out perf/activation_bytes   of that peak, what none of the above explains perf/peak_rss_bytes
//   the most that was resident of the process, pages of files included
// `reference` may be null.
void AddMemoryMetrics(const ShardedModel& policy, const ShardedModel* reference,
                      const AdamW& optimizer, Metrics& metrics);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_MEMORY_METRICS_H_
