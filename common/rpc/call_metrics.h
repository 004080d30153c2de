// CallMetrics: Prometheus metrics of the calls that a server handles, under OpenTelemetry's names
// for gRPC (gRFC A66): grpc_server_call_started_total and grpc_server_call_duration_seconds.
// tandem_rpc_refused_total counts calls that the server refused before a service saw them.
#ifndef TANDEM_COMMON_RPC_CALL_METRICS_H_
#define TANDEM_COMMON_RPC_CALL_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem::rpc {

// Thread-safe. `method` is a call's full name, "/package.Service/Method".
class CallMetrics final : public prometheus::Collectable {
 public:
  CallMetrics();

  void OnStarted(const std::string& method);
  void OnAnswered(const std::string& method, absl::StatusCode code, double seconds);
  void OnRefused(const std::string& method, absl::StatusCode code);

  std::vector<prometheus::MetricFamily> Collect() const override { return registry_.Collect(); }

 private:
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>& started_;
  prometheus::Family<prometheus::Histogram>& duration_;
  prometheus::Family<prometheus::Counter>& refused_;
};

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_CALL_METRICS_H_
