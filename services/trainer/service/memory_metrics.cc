#include "services/trainer/service/memory_metrics.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "common/host/process_memory.h"

namespace tandem::trainer {

void AddMemoryMetrics(const ShardedModel& policy, const ShardedModel* reference,
                      const Optimizer& optimizer, Metrics& metrics) {
  const MemoryBytes policy_bytes = policy.memory_bytes();
  const MemoryBytes reference_bytes =
      reference == nullptr ? MemoryBytes() : reference->memory_bytes();
  const int64_t state = policy_bytes.parameters + policy_bytes.gradients + optimizer.state_bytes() +
                        reference_bytes.parameters;
  // The optimizer's moments are counted with the policy that gave them.
  const int64_t offloaded = policy_bytes.offloaded + reference_bytes.offloaded;
  const int64_t buffers = policy_bytes.buffers + reference_bytes.buffers;
  const int64_t peak = policy.peak_tensor_bytes();
  const auto set = [&metrics](const char* name, int64_t bytes) {
    metrics[std::string("perf/") + name] = static_cast<double>(bytes);
  };
  set("parameter_bytes", policy_bytes.parameters);
  set("gradient_bytes", policy_bytes.gradients);
  set("optimizer_bytes", optimizer.state_bytes());
  if (reference != nullptr) set("reference_bytes", reference_bytes.parameters);
  set("offloaded_bytes", offloaded);
  set("buffer_bytes", buffers);
  set("peak_tensor_bytes", peak);
  set("activation_bytes", std::max<int64_t>(0, peak - (state - offloaded) - buffers));
  set("peak_rss_bytes", host::PeakResidentBytes());
}

}  // namespace tandem::trainer
