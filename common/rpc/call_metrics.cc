#include "common/rpc/call_metrics.h"

namespace tandem::rpc {
namespace {

// Seconds: from a health check to a training step.
const prometheus::Histogram::BucketBoundaries kSeconds = {
    0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};

std::string Labelled(const std::string& method) {
  return method.empty() || method[0] != '/' ? method : method.substr(1);
}

}  // namespace

CallMetrics::CallMetrics()
    : started_(prometheus::BuildCounter()
                   .Name("grpc_server_call_started_total")
                   .Help("Calls started, by method.")
                   .Register(registry_)),
      duration_(prometheus::BuildHistogram()
                    .Name("grpc_server_call_duration_seconds")
                    .Help("Duration of calls, by method and status code.")
                    .Register(registry_)),
      refused_(prometheus::BuildCounter()
                   .Name("tandem_rpc_refused_total")
                   .Help("Calls refused because of their caller, by method and status code.")
                   .Register(registry_)) {}

void CallMetrics::OnStarted(const std::string& method) {
  started_.Add({{"grpc_method", Labelled(method)}}).Increment();
}

void CallMetrics::OnAnswered(const std::string& method, absl::StatusCode code, double seconds) {
  duration_
      .Add({{"grpc_method", Labelled(method)}, {"grpc_status", absl::StatusCodeToString(code)}},
           kSeconds)
      .Observe(seconds);
}

void CallMetrics::OnRefused(const std::string& method, absl::StatusCode code) {
  refused_.Add({{"grpc_method", Labelled(method)}, {"grpc_status", absl::StatusCodeToString(code)}})
      .Increment();
}

}  // namespace tandem::rpc
