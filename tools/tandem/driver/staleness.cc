#include "tools/tandem/driver/staleness.h"

#include <algorithm>

namespace tandem::driver {

void AddStalenessMetrics(const std::vector<Group>& groups, int64_t version, Metrics& metrics) {
  double sum = 0, spans = 0, largest = 0;
  int64_t samples = 0;
  for (const Group& group : groups) {
    for (const Completion& completion : group.completions) {
      if (completion.version_spans.empty()) continue;
      int64_t oldest = version;
      for (const auto& span : completion.version_spans) {
        oldest = std::min<int64_t>(oldest, span.policy_version() + group.version_shift);
      }
      ++samples;
      sum += static_cast<double>(version - oldest);
      largest = std::max(largest, static_cast<double>(version - oldest));
      spans += static_cast<double>(completion.version_spans.size());
    }
  }
  if (samples == 0) return;
  metrics["training/off_policy/trajectory_staleness/mean"] = sum / static_cast<double>(samples);
  metrics["training/off_policy/trajectory_staleness/max"] = largest;
  metrics["training/off_policy/trajectory_spans/mean"] = spans / static_cast<double>(samples);
}

}  // namespace tandem::driver
