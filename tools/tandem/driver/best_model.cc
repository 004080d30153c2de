#include "tools/tandem/driver/best_model.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config/nearest.h"
#include "common/status/status_macros.h"

namespace tandem::driver {

bool BestModel::IsBetter(double value) const {
  if (!std::isfinite(value)) return false;
  if (!step_.has_value()) return true;
  return absl::StrContains(metric_, "loss") ? value < value_ : value > value_;
}

void BestModel::ResumeFrom(const std::optional<BestStep>& saved) {
  if (metric_.empty() || !saved.has_value() || saved->metric != metric_) return;
  step_ = saved->step;
  value_ = saved->value;
}

absl::Status BestModel::OnStep(int64_t step, const Metrics& metrics,
                               const std::function<absl::Status()>& save) {
  const auto found = metric_.empty() ? metrics.end() : metrics.find(metric_);
  if (found == metrics.end() || !IsBetter(found->second)) return absl::OkStatus();
  RETURN_IF_ERROR(save());
  step_ = step;
  value_ = found->second;
  return absl::OkStatus();
}

std::string BestModel::NoteMissing(int64_t step, const Metrics& metrics) {
  if (metric_.empty() || has_noted_ || absl::StartsWith(metric_, "val")) return "";
  if (metrics.contains(metric_)) return "";
  has_noted_ = true;
  std::vector<std::string> names;
  for (const auto& [name, value] : metrics) names.push_back(name);
  const std::string nearest = config::Nearest(metric_, names);
  return absl::StrCat("warning: step ", step, " has no metric ", metric_,
                      " (trainer.save_best), so its model is not among the best; metrics.jsonl has "
                      "the names",
                      nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?"));
}

}  // namespace tandem::driver
