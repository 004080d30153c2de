// MetricsServer: serves GET /metrics of a process in Prometheus's text format.
//
//   ASSIGN_OR_RETURN(auto metrics, metrics::MetricsServer::Start("0.0.0.0:9400",
//                                                                  {.role = "rollout"}));
//   metrics->Add(engine_metrics);  // a std::shared_ptr<prometheus::Collectable>
#ifndef TANDEM_COMMON_METRICS_METRICS_SERVER_H_
#define TANDEM_COMMON_METRICS_METRICS_SERVER_H_

#include <prometheus/collectable.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/http/server.h"
#include "common/metrics/process_metrics.h"

namespace tandem::metrics {

// Add() is thread-safe. The server's threads call the added collectables and keep them until the
// server ends.
class MetricsServer final : private http::Handler {
 public:
  // `listen` is HOST:PORT; port 0 takes a free one. Returns once it serves ProcessMetrics.
  // UNAVAILABLE if the address cannot be bound, INVALID_ARGUMENT if it is none.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& listen,
                                                              ProcessMetrics::Identity identity);
  ~MetricsServer() override;

  void Add(std::shared_ptr<prometheus::Collectable> collectable);

  // HOST:PORT with the actual port.
  const std::string& address() const { return server_->address(); }

 private:
  MetricsServer() = default;
  http::Admission Admit(const http::Request& head) override;
  void Serve(http::Exchange& exchange) override;

  absl::Mutex mu_;
  std::vector<std::shared_ptr<prometheus::Collectable>> collectables_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<http::Server> server_;  // destroyed first
};

}  // namespace tandem::metrics

#endif  // TANDEM_COMMON_METRICS_METRICS_SERVER_H_
