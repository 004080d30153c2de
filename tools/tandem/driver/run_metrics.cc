#include "tools/tandem/driver/run_metrics.h"

#include <utility>

#include "common/metrics/metric_family.h"

namespace tandem::driver {

void RunMetrics::OnStep(int64_t step, const std::map<std::string, double>& metrics) {
  absl::MutexLock lock(&mu_);
  step_ = step;
  last_ = absl::Now();
  values_ = metrics;
}

std::vector<prometheus::MetricFamily> RunMetrics::Collect() const {
  absl::MutexLock lock(&mu_);
  std::vector<prometheus::MetricFamily> out = {
      metrics::GaugeFamily("tandem_run_step", "Last completed step.", static_cast<double>(step_)),
      metrics::GaugeFamily("tandem_run_steps_planned", "Planned number of steps.",
                           static_cast<double>(total_steps_)),
      metrics::GaugeFamily("tandem_run_last_step_timestamp_seconds",
                           "Time of the last completed step, in seconds since the epoch.",
                           absl::ToDoubleSeconds(last_ - absl::UnixEpoch()))};
  auto values = metrics::EmptyFamily("tandem_run_step_value",
                                     "Values of the last step, under the names of metrics.jsonl.",
                                     prometheus::MetricType::Gauge);
  for (const auto& [name, value] : values_) metrics::AddGauge(values, value, {{"name", name}});
  out.push_back(std::move(values));
  return out;
}

}  // namespace tandem::driver
