#include "services/trainer/service/memory_metrics.h"

#include <algorithm>
#include <string>

#include "common/host/process_memory.h"

namespace tandem::trainer {

void AddMemoryMetrics(const RankMemory& memory, Metrics& metrics) {
  const MemoryBytes reference = memory.reference.value_or(MemoryBytes());
  const MemoryBytes critic = memory.critic.value_or(MemoryBytes());
  const int64_t critic_state = critic.parameters + critic.gradients + memory.critic_optimizer;
  const int64_t state = memory.policy.parameters + memory.policy.gradients + memory.optimizer +
                        reference.parameters + critic_state;
  // An optimizer's offloaded moments are counted with the model that gave them.
  const int64_t offloaded = memory.policy.offloaded + reference.offloaded + critic.offloaded;
  const int64_t buffers = memory.policy.buffers + reference.buffers + critic.buffers;
  const auto set = [&metrics](const char* name, int64_t bytes) {
    metrics[std::string("perf/") + name] = static_cast<double>(bytes);
  };
  set("parameter_bytes", memory.policy.parameters);
  set("gradient_bytes", memory.policy.gradients);
  set("optimizer_bytes", memory.optimizer);
  if (memory.reference.has_value()) set("reference_bytes", reference.parameters);
  if (memory.critic.has_value()) set("critic_bytes", critic_state);
  set("offloaded_bytes", offloaded);
  set("buffer_bytes", buffers);
  set("peak_tensor_bytes", memory.peak_tensors);
  set("activation_bytes",
      std::max<int64_t>(0, memory.peak_tensors - (state - offloaded) - buffers));
  set("peak_rss_bytes", host::PeakResidentBytes());
}

}  // namespace tandem::trainer
