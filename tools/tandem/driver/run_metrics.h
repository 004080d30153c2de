// RunMetrics: the driver's Prometheus metrics: the run's current step, and the values of its last
// line of metrics.jsonl.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_RUN_METRICS_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_RUN_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tandem::driver {

// Thread-safe.
class RunMetrics final : public prometheus::Collectable {
 public:
  explicit RunMetrics(int64_t total_steps) : total_steps_(total_steps) {}

  void OnStep(int64_t step, const std::map<std::string, double>& metrics);
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const int64_t total_steps_;
  mutable absl::Mutex mu_;
  int64_t step_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time last_ ABSL_GUARDED_BY(mu_) = absl::Now();
  std::map<std::string, double> values_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_RUN_METRICS_H_
