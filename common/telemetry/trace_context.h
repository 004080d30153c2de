// TraceContext: which trace a piece of work belongs to, and which span it is a part of, as W3C's
// Trace Context has it, so that one trace follows a step through every process.
//
//   telemetry::ScopedTraceContext scope(telemetry::NewTrace());      // the driver, once a step
//   ... calls carry `traceparent`; spans on this thread become its children ...
//   ScopedTraceContext scope(ParseTraceparent(header));              // whoever is called
//
// The context is the calling thread's; work that is handed to another thread takes it along.
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
  uint64_t span = 0;  // the one that is open

  bool valid() const { return (trace_high | trace_low) != 0 && span != 0; }
  std::string TraceId() const;  // 32 hexadecimal digits
  friend bool operator==(const TraceContext&, const TraceContext&) = default;
};

// 16 hexadecimal digits.
std::string SpanId(uint64_t span);
// Never 0.
uint64_t NewSpanId();

// A trace of its own, whose first span has an id already.
TraceContext NewTrace();

// "00-TRACE-SPAN-01"; empty where the context is not valid.
std::string ToTraceparent(const TraceContext& context);
// Not valid where `header` is not of that form.
TraceContext ParseTraceparent(absl::string_view header);

// The calling thread's; not valid outside of any.
TraceContext CurrentTraceContext();

// Sets the thread's context for its scope. Destroyed on the thread that made it.
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
