// Memory use of a rank, as metrics.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_MEMORY_METRICS_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_MEMORY_METRICS_H_

#include <cstdint>
#include <optional>

#include "services/trainer/algorithm/update_statistics.h"
#include "services/trainer/fsdp/sharded_model.h"

namespace tandem::trainer {

struct RankMemory {
  MemoryBytes policy;
  int64_t optimizer = 0;  // the moments of the policy's optimizer
  std::optional<MemoryBytes> reference;
  std::optional<MemoryBytes> critic;
  int64_t critic_optimizer = 0;
  int64_t peak_tensors = 0;  // ShardedModel::peak_tensor_bytes(), which covers all models
};

// Sets, in bytes of this rank:
//   perf/parameter_bytes, perf/gradient_bytes, perf/optimizer_bytes: shards, wherever they rest
//   perf/reference_bytes: shards of the reference, if there is one
//   perf/critic_bytes: shards, gradients and moments of the critic, if there is one
//   perf/offloaded_bytes: how much of all these rests in host memory (GPU ranks) or in files
//   perf/buffer_bytes: gathered units and gradients in transit, peak
//   perf/peak_tensor_bytes: peak of the device's tensors, without offloaded ones
//   perf/activation_bytes: the part of that peak that none of the above explains
//   perf/peak_rss_bytes: peak resident set of the process, file pages included
void AddMemoryMetrics(const RankMemory& memory, Metrics& metrics);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_MEMORY_METRICS_H_
