#include "tools/tandem/driver/overlong_penalty.h"

#include <algorithm>

#include "common/config/summary.h"

namespace tandem::driver {

double OverlongPenalty(int64_t num_tokens, int64_t max_tokens,
                       const config::v1::OverlongBufferConfig& buffer) {
  const double excess = static_cast<double>(num_tokens - (max_tokens - buffer.len()));
  if (excess <= 0) return 0;
  return -excess / static_cast<double>(buffer.len()) * buffer.penalty_factor();
}

void AddOverlongPenalty(const config::v1::RunConfig& config, std::vector<Group>& groups) {
  const config::v1::OverlongBufferConfig& buffer = config.reward().overlong_buffer();
  if (!buffer.enable()) return;
  for (Group& group : groups) {
    for (Completion* completion : group.judged()) {
      completion->reward =
          completion->score + OverlongPenalty(static_cast<int64_t>(completion->token_ids.size()),
                                              config::LongestCompletion(config), buffer);
    }
  }
}

void AddOverlongMetrics(const std::vector<Group>& groups, Metrics& metrics) {
  double sum = 0;
  double num_punished = 0;
  double count = 0;
  for (const Group& group : groups) {
    for (const Completion& completion : group.completions) {
      sum += completion.reward - completion.score;
      num_punished += completion.reward < completion.score ? 1 : 0;
      ++count;
    }
  }
  metrics["reward/overlong_penalty/mean"] = sum / std::max(count, 1.0);
  metrics["reward/overlong_ratio"] = num_punished / std::max(count, 1.0);
}

}  // namespace tandem::driver
