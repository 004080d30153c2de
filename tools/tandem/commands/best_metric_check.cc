#include "tools/tandem/commands/best_metric_check.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/nearest.h"
#include "tools/tandem/driver/evaluator.h"
#include "tools/tandem/driver/reward_parts.h"

namespace tandem::commands {
namespace {

// Groups of the metrics of training steps (tools/reference/metrics.yaml).
constexpr const char* kTrainingGroups[] = {
    "actor/",         "async/",  "critic/",   "fleet/",           "logps/",   "perf/",
    "prompt_length/", "reward/", "rewards/",  "response_length/", "rollout/", "rollout_corr/",
    "timing_s/",      "train/",  "training/", "update_weights/"};

// What evaluations of the run measure.
std::vector<std::string> EvaluationMetrics(const CheckedRun& run) {
  std::vector<std::string> names;
  if (run.test == nullptr) return names;
  if (!run.reinforcement) names.push_back("val/loss");
  if (run.by_preference) names.push_back("val/accuracy");
  if (!run.rewards_test()) return names;
  const config::v1::RewardConfig& reward = run.config.reward();
  names.push_back(driver::EvaluationMetric(run.config, driver::RewardLabel(reward)));
  if (reward.rewards().empty()) return names;
  for (const driver::RewardPart& part : driver::RewardParts(reward)) {
    const std::string name = driver::EvaluationMetric(run.config, part.label);
    if (name != names.back()) names.push_back(name);
  }
  return names;
}

}  // namespace

absl::Status CheckBestMetric(const CheckedRun& run) {
  const std::string& metric = run.config.trainer().save_best();
  if (metric.empty()) return absl::OkStatus();
  for (const char* group : kTrainingGroups) {
    if (absl::StartsWith(metric, group)) return absl::OkStatus();
  }
  const std::vector<std::string> known = EvaluationMetrics(run);
  if (std::find(known.begin(), known.end(), metric) != known.end()) return absl::OkStatus();
  const std::string nearest = config::Nearest(metric, known);
  return absl::InvalidArgumentError(absl::StrCat(
      "trainer.save_best: expected a metric of this run's evaluations (",
      known.empty() ? "none, without data.test_files and trainer.test_freq"
                    : absl::StrJoin(known, ", "),
      ") or of its steps (such as critic/rewards/mean or train/loss), found \"", metric, "\"",
      nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?")));
}

}  // namespace tandem::commands
