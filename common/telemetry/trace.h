// Records spans of work as a trace that ui.perfetto.dev and chrome://tracing open.
//
//   telemetry::StartTrace({.path = run_dir + "/trace.json", .process_name = "trainer rank 0"});
//   {
//     telemetry::ScopedSpan span("forward", {{"unit", unit}});
//     ...
//   }
//   RETURN_IF_ERROR(telemetry::WriteTrace());
//
// If the thread has a trace context, a span is a child of the open span and carries the ids of
// both. Without a started trace, a span costs one atomic load. Timestamps are wall-clock times, so
// the merged traces of a run's processes line up.
#ifndef TANDEM_COMMON_TELEMETRY_TRACE_H_
#define TANDEM_COMMON_TELEMETRY_TRACE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/telemetry/log.h"
#include "common/telemetry/trace_context.h"

namespace tandem::telemetry {

struct TraceOptions {
  std::string path;
  std::string process_name;
  // Spans beyond this limit are counted, not kept: each takes about 150 bytes.
  int64_t max_spans = 1000000;
};

// Starts recording spans of all threads. Drops spans of an earlier trace that was not written.
void StartTrace(TraceOptions options);

// Atomically writes what was recorded so far and continues recording; call it at the end of each
// step and of the run. OK if no trace was started.
absl::Status WriteTrace();

// Writes and stops recording.
absl::Status StopTrace();

bool TraceEnabled();

// Names the calling thread in traces; may be called before the trace starts.
void NameTraceThread(std::string name);

// Merges the events of several trace files. Skips, with a warning in the log, files that are absent
// or are not traces: a killed process leaves none.
absl::Status MergeTraces(const std::vector<std::string>& paths, const std::string& output);

// Records a finished span of any thread: it started at `start` and ends now. `context` identifies
// the span itself; `parent` is 0 if it has none.
void RecordSpan(absl::string_view name, absl::Time start, const TraceContext& context,
                uint64_t parent, Fields arguments = {});

// A span from construction to destruction, both on the same thread.
class ScopedSpan {
 public:
  explicit ScopedSpan(absl::string_view name, Fields arguments = {}) {
    if (TraceEnabled()) Begin(name, arguments);
  }
  ~ScopedSpan() {
    if (start_us_ >= 0) End();
  }
  ScopedSpan(const ScopedSpan&) = delete;
  ScopedSpan& operator=(const ScopedSpan&) = delete;

 private:
  void Begin(absl::string_view name, Fields arguments);
  void End();

  double start_us_ = -1;
  uint64_t parent_ = 0;
  std::optional<ScopedTraceContext> context_;  // of a span that belongs to a trace
  std::string name_;
  std::string arguments_;  // the inside of a JSON object
};

}  // namespace tandem::telemetry

#endif  // TANDEM_COMMON_TELEMETRY_TRACE_H_
