// Spans of work as a trace that ui.perfetto.dev and chrome://tracing open.
//
//   telemetry::StartTrace({.path = run_dir + "/trace.json", .process_name = "trainer rank 0"});
//   {
//     telemetry::ScopedSpan span("forward", {{"unit", unit}});
//     ...
//   }
//   RETURN_IF_ERROR(telemetry::WriteTrace());
//
// Where the thread has a trace context, a span is a child of the span that is open there, and
// carries the ids of both. Where no trace was started, a span costs one load of an atomic. Time
// stamps are those of the wall clock, so the traces of a run's processes line up when they are
// merged.
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
  // Spans beyond it are counted, not kept: about 150 bytes each.
  int64_t max_spans = 1000000;
};

// Begins to record spans of all threads. Forgets those of an earlier trace that was not written.
void StartTrace(TraceOptions options);

// Writes what was recorded so far, atomically, and goes on recording; call it at a step's end and
// at the end of the run. OK where no trace was started.
absl::Status WriteTrace();

// Writes and stops recording.
absl::Status StopTrace();

bool TraceEnabled();

// Names the calling thread in traces; may be called before the trace starts.
void NameTraceThread(std::string name);

// Puts the events of several trace files into one. Files that are absent or are not traces are left
// out, with a warning in the log: a process that was killed has left none.
absl::Status MergeTraces(const std::vector<std::string>& paths, const std::string& output);

// A span that is over, of any thread: it began at `start` and ends now. `context` says which span
// it is itself; `parent` is 0 where it has none.
void RecordSpan(absl::string_view name, absl::Time start, const TraceContext& context,
                uint64_t parent, Fields arguments = {});

// From construction to destruction, on the thread that does both.
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
