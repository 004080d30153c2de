#include "common/telemetry/trace_context.h"

#include <random>

#include "absl/strings/str_format.h"

namespace tandem::telemetry {
namespace {

thread_local TraceContext current;

// Seeded from the system: processes that start together must not draw the same ids.
uint64_t Draw() {
  static thread_local std::mt19937_64 generator = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return generator();
}

// Lower-case hexadecimal digits only, as the standard asks.
bool ParseHex(absl::string_view text, uint64_t& value) {
  value = 0;
  for (const char c : text) {
    int digit = 0;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if (c >= 'a' && c <= 'f') {
      digit = c - 'a' + 10;
    } else {
      return false;
    }
    value = value << 4 | static_cast<uint64_t>(digit);
  }
  return true;
}

}  // namespace

std::string TraceContext::TraceId() const {
  return absl::StrFormat("%016x%016x", trace_high, trace_low);
}

std::string SpanId(uint64_t span) { return absl::StrFormat("%016x", span); }

uint64_t NewSpanId() {
  uint64_t id = 0;
  while (id == 0) id = Draw();
  return id;
}

TraceContext NewTrace() { return {NewSpanId(), NewSpanId(), NewSpanId()}; }

std::string ToTraceparent(const TraceContext& context) {
  if (!context.valid()) return "";
  return absl::StrFormat("00-%s-%s-01", context.TraceId(), SpanId(context.span));
}

TraceContext ParseTraceparent(absl::string_view header) {
  // Later versions may append parts.
  constexpr size_t kSize = 55;
  uint64_t version = 0;
  TraceContext out;
  uint64_t flags = 0;
  const bool well_formed =
      header.size() >= kSize && header[2] == '-' && header[35] == '-' && header[52] == '-' &&
      ParseHex(header.substr(0, 2), version) && version != 0xff &&
      (header.size() == kSize || (version > 0 && header[kSize] == '-')) &&
      ParseHex(header.substr(3, 16), out.trace_high) &&
      ParseHex(header.substr(19, 16), out.trace_low) && ParseHex(header.substr(36, 16), out.span) &&
      ParseHex(header.substr(53, 2), flags);
  return well_formed ? out : TraceContext{};
}

TraceContext CurrentTraceContext() { return current; }

ScopedTraceContext::ScopedTraceContext(const TraceContext& context) : before_(current) {
  current = context;
}

ScopedTraceContext::~ScopedTraceContext() { current = before_; }

}  // namespace tandem::telemetry
