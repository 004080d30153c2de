#include "tools/tandem/driver/part_scores.h"

#include "absl/strings/str_cat.h"

namespace tandem::driver {

std::map<std::string, double> MeanPartScores(const std::vector<Group>& groups) {
  std::map<std::string, double> means;
  std::map<std::string, double> counts;
  for (const Group& group : groups) {
    for (const Completion& completion : group.completions) {
      for (const auto& [label, score] : completion.part_scores) {
        means[label] += score;
        ++counts[label];
      }
    }
  }
  for (auto& [label, mean] : means) mean /= counts[label];
  return means;
}

void AddPartScoreMetrics(const std::vector<Group>& groups, Metrics& metrics) {
  for (const auto& [label, mean] : MeanPartScores(groups)) {
    metrics[absl::StrCat("reward/scores/", label, "/mean")] = mean;
  }
}

}  // namespace tandem::driver
