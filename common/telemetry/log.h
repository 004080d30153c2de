// Log lines: one event per line to stderr, a short sentence followed by key=value fields.
//
//   telemetry::SetLogContext({.run = "digits-1", .role = "trainer", .rank = 0});
//   telemetry::LogInfo("weights committed", {{"seconds", 0.31}, {"bytes", bytes}});
//
//   2026-01-31T12:00:00.123Z INFO weights committed run=digits-1 role=trainer rank=0
//       policy_version=3 seconds=0.31 bytes=1048576                                  (on one line)
//
// TANDEM_LOG sets the level (debug, info, warning or error; default info). Every function is
// thread-safe; a line is one write(2), so lines of several processes do not mix.
#ifndef TANDEM_COMMON_TELEMETRY_LOG_H_
#define TANDEM_COMMON_TELEMETRY_LOG_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "absl/strings/string_view.h"

namespace tandem::telemetry {

enum class LogLevel { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

// A field's number, truth value or text. Does not copy text: a value lives as long as the statement
// it is written in.
class FieldValue {
 public:
  template <typename T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  FieldValue(T value) : value_(Widen(value)) {}  // NOLINT: implicit, so that fields read as a table
  FieldValue(absl::string_view text) : value_(text) {}  // NOLINT
  FieldValue(std::string_view text)                     // NOLINT
      : value_(absl::string_view(text.data(), text.size())) {}
  FieldValue(const std::string& text) : value_(text) {}              // NOLINT
  FieldValue(const char* text) : value_(absl::string_view(text)) {}  // NOLINT

  // Formats the value for a log line; quotes text that has spaces, quotes or '='.
  std::string ToLogText() const;
  // Formats it as a JSON value; numbers that JSON cannot express become strings.
  std::string ToJson() const;

 private:
  using Variant = std::variant<bool, int64_t, uint64_t, double, absl::string_view>;
  template <typename T>
  static Variant Widen(T value) {
    if constexpr (std::is_same_v<T, bool>)
      return value;
    else if constexpr (std::is_floating_point_v<T>)
      return static_cast<double>(value);
    else if constexpr (std::is_signed_v<T>)
      return static_cast<int64_t>(value);
    else
      return static_cast<uint64_t>(value);
  }

  Variant value_;
};

struct Field {
  absl::string_view key;
  FieldValue value;
};
using Fields = std::initializer_list<Field>;

// Fields that every line of this process carries. Empty text and rank -1 are left out.
struct LogContext {
  std::string run;
  std::string role;
  int rank = -1;
};
void SetLogContext(LogContext context);

// Sets the version of the weights that this process holds, which later lines carry.
void SetLogPolicyVersion(int64_t policy_version);

// Drops lines below the level. Overrides TANDEM_LOG.
void SetLogLevel(LogLevel level);
bool LogEnabled(LogLevel level);

void Log(LogLevel level, absl::string_view sentence, Fields fields = {});

inline void LogDebug(absl::string_view sentence, Fields fields = {}) {
  if (LogEnabled(LogLevel::kDebug)) Log(LogLevel::kDebug, sentence, fields);
}
inline void LogInfo(absl::string_view sentence, Fields fields = {}) {
  Log(LogLevel::kInfo, sentence, fields);
}
inline void LogWarning(absl::string_view sentence, Fields fields = {}) {
  Log(LogLevel::kWarning, sentence, fields);
}
inline void LogError(absl::string_view sentence, Fields fields = {}) {
  Log(LogLevel::kError, sentence, fields);
}

// Sends lines to `sink` instead of stderr; nullptr restores stderr. For tests.
using LogSink = void (*)(absl::string_view line);
void SetLogSink(LogSink sink);

}  // namespace tandem::telemetry

#endif  // TANDEM_COMMON_TELEMETRY_LOG_H_
