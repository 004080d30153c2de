// TraceContext: the trace and the span that a piece of work belongs to, as in W3C Trace Context, so
// that one trace follows a step through every process.
//
//   // The driver, once a step: calls carry `traceparent`, spans on this thread become children.
//   telemetry::ScopedTraceContext scope(telemetry::NewTrace());
//
//   telemetry::ScopedTraceContext scope(telemetry::ParseTraceparent(header));  // the callee
//
// The context belongs to the calling thread; pass it along when you hand work to another thread.
#ifndef TANDEM_COMMON_TELEMETRY_TRACE_CONTEXT_H_
#define TANDEM_COMMON_TELEMETRY_TRACE_CONTEXT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tandem::telemetry {

inline constexpr char kTraceparent[] = "traceparent";  // the header's name

struct TraceContext {
  uint64_t trace_high = 0;
  uint64_t trace_low = 0;
  uint64_t span = 0;  // the open span

  bool valid() const { return (trace_high | trace_low) != 0 && span != 0; }
  std::string TraceId() const;  // 32 hexadecimal digits
  friend bool operator==(const TraceContext&, const TraceContext&) = default;
};

// 16 hexadecimal digits.
std::string SpanId(uint64_t span);
// Never 0.
uint64_t NewSpanId();

// Starts a new trace, whose first span already has an id.
TraceContext NewTrace();

// "00-TRACE-SPAN-01"; empty if the context is not valid.
std::string ToTraceparent(const TraceContext& context);
// Not valid if `header` does not have that form.
TraceContext ParseTraceparent(absl::string_view header);

// The calling thread's context; not valid if it has none.
TraceContext CurrentTraceContext();

// Sets the thread's context for its scope. Destroy it on the thread that made it.
class ScopedTraceContext {
 public:
  explicit ScopedTraceContext(const TraceContext& context);
  ~ScopedTraceContext();
  ScopedTraceContext(const ScopedTraceContext&) = delete;
  ScopedTraceContext& operator=(const ScopedTraceContext&) = delete;

 private:
  const TraceContext before_;
};

}  // namespace tandem::telemetry

#endif  // TANDEM_COMMON_TELEMETRY_TRACE_CONTEXT_H_
