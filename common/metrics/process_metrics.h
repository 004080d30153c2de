// ProcessMetrics: the system's figures for this process, under the names of Prometheus's own
// clients: process_resident_memory_bytes, process_cpu_seconds_total, process_open_fds,
// process_threads, process_start_time_seconds; and tandem_build_info.
#ifndef TANDEM_COMMON_METRICS_PROCESS_METRICS_H_
#define TANDEM_COMMON_METRICS_PROCESS_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <string>
#include <vector>

namespace tandem::metrics {

// Thread-safe. Omits values that the system does not report.
class ProcessMetrics final : public prometheus::Collectable {
 public:
  // Labels of tandem_build_info; rank -1 is left out.
  struct Identity {
    std::string role;
    std::string version;
    int rank = -1;
  };

  explicit ProcessMetrics(Identity identity);
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Identity identity_;
  const double start_seconds_;  // since the epoch
};

}  // namespace tandem::metrics

#endif  // TANDEM_COMMON_METRICS_PROCESS_METRICS_H_
