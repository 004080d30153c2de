// Exports a run's trace to an OpenTelemetry collector: OTLP over HTTP, JSON encoding.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_OTLP_EXPORT_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_OTLP_EXPORT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::driver {

// Converts the events of a trace file that belong to a trace into requests of at most `max_spans`
// spans each (ExportTraceServiceRequest of opentelemetry-proto). Each process is a resource:
// service.name "tandem", service.instance.id the process's name.
std::vector<nlohmann::json> ToOtlp(const nlohmann::json& trace, size_t max_spans);

// Posts a trace file to `endpoint`/v1/traces, where `endpoint` is http://HOST:PORT[/PATH] as in
// OTEL_EXPORTER_OTLP_ENDPOINT; returns how many spans were accepted. INVALID_ARGUMENT for another
// kind of endpoint, UNAVAILABLE, with the collector's answer, if the collector rejects them.
absl::StatusOr<int64_t> ExportTrace(const std::string& trace_path, const std::string& endpoint);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_OTLP_EXPORT_H_
