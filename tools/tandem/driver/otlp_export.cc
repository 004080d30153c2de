#include "tools/tandem/driver/otlp_export.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/http/client.h"
#include "common/io/file_util.h"
#include "common/io/json_values.h"
#include "common/io/read_file.h"
#include "common/status/status_macros.h"

namespace tandem::driver {
namespace {

using nlohmann::json;

constexpr int64_t kMaxTraceBytes = int64_t{16} << 30;
constexpr size_t kSpansOfARequest = 2000;
constexpr absl::Duration kRequestTimeout = absl::Seconds(10);
constexpr int kInternalSpan = 1;  // SPAN_KIND_INTERNAL

json Attribute(const std::string& key, const json& value) {
  json typed;
  if (value.is_number_integer()) {
    // OTLP's JSON writes 64-bit integers as strings.
    typed["intValue"] = absl::StrCat(value.get<int64_t>());
  } else if (value.is_number()) {
    typed["doubleValue"] = value;
  } else if (value.is_boolean()) {
    typed["boolValue"] = value;
  } else {
    typed["stringValue"] = value.is_string() ? value : json(value.dump());
  }
  return {{"key", key}, {"value", std::move(typed)}};
}

std::string Nanoseconds(double microseconds) {
  constexpr double kLimit = 9.2e18;  // slightly below the largest int64_t
  const double nanoseconds = std::clamp(microseconds * 1e3, -kLimit, kLimit);
  return absl::StrCat(std::isnan(nanoseconds) ? 0 : static_cast<int64_t>(nanoseconds));
}

json SpanOf(const json& event) {
  const json& args = event["args"];
  json span = {{"traceId", args["trace_id"]},
               {"spanId", args["span_id"]},
               {"name", io::TextOr(event, "name", "")},
               {"kind", kInternalSpan},
               {"startTimeUnixNano", Nanoseconds(io::NumberOr(event, "ts", 0))},
               {"endTimeUnixNano",
                Nanoseconds(io::NumberOr(event, "ts", 0) + io::NumberOr(event, "dur", 0))},
               {"attributes", json::array()}};
  if (args.contains("parent_id")) span["parentSpanId"] = args["parent_id"];
  for (const auto& [key, value] : args.items()) {
    if (key == "trace_id" || key == "span_id" || key == "parent_id") continue;
    span["attributes"].push_back(Attribute(key, value));
  }
  return span;
}

bool IsOfATrace(const json& event) {
  return event.is_object() && io::TextOr(event, "ph", "") == "X" && event.contains("args") &&
         event["args"].is_object() && event["args"].contains("trace_id") &&
         event["args"].contains("span_id");
}

absl::StatusOr<http::Url> ParseEndpoint(absl::string_view endpoint) {
  absl::StatusOr<http::Url> url = http::ParseUrl(endpoint);
  RETURN_IF_ERROR(io::AtPlace("OTEL_EXPORTER_OTLP_ENDPOINT", url.status()));
  url->path += "/v1/traces";
  return url;
}

absl::Status Post(const http::Url& endpoint, std::string body) {
  const auto unavailable = [&](absl::string_view why) {
    return absl::UnavailableError(absl::StrCat("the collector at ", endpoint.server.ToString(),
                                               " did not accept the trace: ", why));
  };
  const absl::StatusOr<http::Response> answer =
      http::Post({.url = endpoint, .body = std::move(body)}, absl::Now() + kRequestTimeout);
  if (!answer.ok()) return unavailable(answer.status().message());
  if (answer->code >= 200 && answer->code < 300) return absl::OkStatus();
  return unavailable(absl::StrCat("HTTP ", answer->code, " ", answer->body.substr(0, 512)));
}

}  // namespace

std::vector<json> ToOtlp(const json& trace, size_t max_spans) {
  std::map<int64_t, std::string> processes;
  for (const json& event : trace["traceEvents"]) {
    if (event.is_object() && io::TextOr(event, "ph", "") == "M" &&
        io::TextOr(event, "name", "") == "process_name") {
      const json* args = io::FindValue(event, "args");
      processes[io::IntegerOr(event, "pid", 0)] =
          args != nullptr ? io::TextOr(*args, "name", "") : "";
    }
  }
  std::vector<json> out;
  std::map<int64_t, json> spans;  // by process
  size_t count = 0;
  const auto flush = [&] {
    if (count == 0) return;
    json resources = json::array();
    for (auto& [pid, of_process] : spans) {
      resources.push_back(
          {{"resource",
            {{"attributes",
              {Attribute("service.name", "tandem"),
               Attribute("service.instance.id", processes[pid])}}}},
           {"scopeSpans", {{{"scope", {{"name", "tandem"}}}, {"spans", std::move(of_process)}}}}});
    }
    out.push_back({{"resourceSpans", std::move(resources)}});
    spans.clear();
    count = 0;
  };
  for (const json& event : trace["traceEvents"]) {
    if (!IsOfATrace(event)) continue;
    json& of_process =
        spans.try_emplace(io::IntegerOr(event, "pid", 0), json::array()).first->second;
    of_process.push_back(SpanOf(event));
    if (++count == max_spans) flush();
  }
  flush();
  return out;
}

absl::StatusOr<int64_t> ExportTrace(const std::string& trace_path, const std::string& endpoint) {
  ASSIGN_OR_RETURN(const http::Url parsed, ParseEndpoint(endpoint));
  ASSIGN_OR_RETURN(const std::string text, io::ReadFile(trace_path, kMaxTraceBytes));
  const json trace = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array()) {
    return absl::InvalidArgumentError(absl::StrCat(trace_path, ": expected a trace"));
  }
  int64_t count = 0;
  for (const json& request : ToOtlp(trace, kSpansOfARequest)) {
    RETURN_IF_ERROR(Post(parsed, request.dump(-1, ' ', false, json::error_handler_t::replace)));
    for (const json& resource : request["resourceSpans"]) {
      count += static_cast<int64_t>(resource["scopeSpans"][0]["spans"].size());
    }
  }
  return count;
}

}  // namespace tandem::driver
