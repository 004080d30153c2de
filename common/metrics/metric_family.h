// Metrics whose values are computed when they are scraped, in prometheus-cpp's form.
//
//   std::vector<prometheus::MetricFamily> Collect() const override {
//     return {metrics::GaugeFamily("tandem_policy_version", "Version of the live weights.", 3)};
//   }
//
// Names follow Prometheus's rules: prefix tandem_, base units in the plural (_seconds, _bytes),
// _total for counters.
#ifndef TANDEM_COMMON_METRICS_METRIC_FAMILY_H_
#define TANDEM_COMMON_METRICS_METRIC_FAMILY_H_

#include <prometheus/metric_family.h>

#include <string>
#include <utility>
#include <vector>

namespace tandem::metrics {

// Makes a family without members.
inline prometheus::MetricFamily EmptyFamily(std::string name, std::string help,
                                            prometheus::MetricType type) {
  return {std::move(name), std::move(help), type, {}};
}

// Adds a member to a family of gauges.
inline void AddGauge(prometheus::MetricFamily& family, double value,
                     std::vector<prometheus::ClientMetric::Label> labels) {
  prometheus::ClientMetric metric;
  metric.gauge.value = value;
  metric.label = std::move(labels);
  family.metric.push_back(std::move(metric));
}

inline prometheus::MetricFamily GaugeFamily(std::string name, std::string help, double value) {
  auto family = EmptyFamily(std::move(name), std::move(help), prometheus::MetricType::Gauge);
  AddGauge(family, value, {});
  return family;
}

inline prometheus::MetricFamily CounterFamily(std::string name, std::string help, double value) {
  auto family = EmptyFamily(std::move(name), std::move(help), prometheus::MetricType::Counter);
  prometheus::ClientMetric metric;
  metric.counter.value = value;
  family.metric.push_back(std::move(metric));
  return family;
}

// 1 for the current state and 0 for every other: Prometheus's convention.
inline prometheus::MetricFamily StateFamily(std::string name, std::string help,
                                            const std::vector<std::string>& states,
                                            const std::string& current) {
  auto family = EmptyFamily(std::move(name), std::move(help), prometheus::MetricType::Gauge);
  for (const std::string& state : states) {
    AddGauge(family, state == current ? 1 : 0, {{"state", state}});
  }
  return family;
}

}  // namespace tandem::metrics

#endif  // TANDEM_COMMON_METRICS_METRIC_FAMILY_H_
