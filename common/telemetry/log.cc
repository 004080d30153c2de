#include "common/telemetry/log.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/text/printable.h"
#include "common/text/utf8.h"

namespace tandem::telemetry {
namespace {

constexpr int64_t kNoVersion = -1;

struct ContextText {
  absl::Mutex mu;
  std::string text ABSL_GUARDED_BY(mu);  // " run=... role=... rank=..."
};

// Never destroyed: threads log while the process exits.
ContextText& Context() {
  static ContextText* context = new ContextText;
  return *context;
}

LogLevel LevelFromEnvironment() {
  const char* text = std::getenv("TANDEM_LOG");
  const std::string level = absl::AsciiStrToLower(text == nullptr ? "" : text);
  if (level == "debug") return LogLevel::kDebug;
  if (level == "warning") return LogLevel::kWarning;
  if (level == "error") return LogLevel::kError;
  return LogLevel::kInfo;
}

std::atomic<LogLevel>& Threshold() {
  static std::atomic<LogLevel> level{LevelFromEnvironment()};
  return level;
}

std::atomic<int64_t> policy_version_of_process{kNoVersion};
std::atomic<LogSink> sink_of_process{nullptr};

absl::string_view LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "DEBUG";
    case LogLevel::kInfo:
      return "INFO";
    case LogLevel::kWarning:
      return "WARNING";
    case LogLevel::kError:
      return "ERROR";
  }
  return "INFO";
}

// Escapes quotes and backslashes in `text`.
std::string EscapeQuotes(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\"", "\\\""}, {"\\", "\\\\"}});
}

// A JSON string, whatever bytes `text` has.
std::string JsonString(absl::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const text::CodePoint c = text::DecodeUtf8(text);
    if (c.size == 0) {
      out += "\\ufffd";
    } else if (c.value == '"' || c.value == '\\') {
      absl::StrAppend(&out, "\\", text.substr(0, 1));
    } else if (c.value == '\n') {
      out += "\\n";
    } else if (c.value == '\t') {
      out += "\\t";
    } else if (c.value < 0x20) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint32_t>(c.value));
    } else {
      out.append(text.data(), c.size);
    }
    text.remove_prefix(std::max<size_t>(c.size, 1));
  }
  out += '"';
  return out;
}

std::string ShortestNumber(double value) {
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, result.ptr);
}

// Six digits are enough for a reader; metrics have the exact number.
std::string ReadableNumber(double value) { return absl::StrFormat("%.6g", value); }

void WriteLine(absl::string_view line) {
  if (const LogSink sink = sink_of_process.load(); sink != nullptr) {
    sink(line);
    return;
  }
  while (!line.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return;  // nowhere to report it
    }
    line.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

std::string FieldValue::ToLogText() const {
  if (const bool* value = std::get_if<bool>(&value_)) return *value ? "true" : "false";
  if (const int64_t* value = std::get_if<int64_t>(&value_)) return absl::StrCat(*value);
  if (const uint64_t* value = std::get_if<uint64_t>(&value_)) return absl::StrCat(*value);
  if (const double* value = std::get_if<double>(&value_)) return ReadableNumber(*value);
  const absl::string_view text = std::get<absl::string_view>(value_);
  const std::string shown = text::PrintableLine(EscapeQuotes(text));
  const bool plain = !text.empty() && shown == text && text.find_first_of(" =") == text.npos;
  return plain ? shown : absl::StrCat("\"", shown, "\"");
}

std::string FieldValue::ToJson() const {
  if (const double* value = std::get_if<double>(&value_)) {
    const std::string number = ShortestNumber(*value);
    return std::isfinite(*value) ? number : absl::StrCat("\"", number, "\"");
  }
  if (const absl::string_view* text = std::get_if<absl::string_view>(&value_)) {
    return JsonString(*text);
  }
  return ToLogText();
}

void SetLogContext(LogContext context) {
  std::string text;
  if (!context.run.empty()) absl::StrAppend(&text, " run=", FieldValue(context.run).ToLogText());
  if (!context.role.empty()) absl::StrAppend(&text, " role=", FieldValue(context.role).ToLogText());
  if (context.rank >= 0) absl::StrAppend(&text, " rank=", context.rank);
  absl::MutexLock lock(&Context().mu);
  Context().text = std::move(text);
}

void SetLogPolicyVersion(int64_t policy_version) { policy_version_of_process = policy_version; }

void SetLogLevel(LogLevel level) { Threshold() = level; }

bool LogEnabled(LogLevel level) { return level >= Threshold().load(std::memory_order_relaxed); }

void SetLogSink(LogSink sink) { sink_of_process = sink; }

void Log(LogLevel level, absl::string_view sentence, Fields fields) {
  if (!LogEnabled(level)) return;
  std::string line = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ ", absl::Now(), absl::UTCTimeZone());
  absl::StrAppend(&line, LevelName(level), " ");
  line += text::PrintableLine(absl::StrReplaceAll(sentence, {{"\n", " "}, {"\t", " "}}));
  {
    absl::MutexLock lock(&Context().mu);
    line += Context().text;
  }
  if (const int64_t version = policy_version_of_process.load(); version != kNoVersion) {
    absl::StrAppend(&line, " policy_version=", version);
  }
  for (const Field& field : fields) {
    absl::StrAppend(&line, " ", field.key, "=", field.value.ToLogText());
  }
  line += '\n';
  WriteLine(line);
}

}  // namespace tandem::telemetry
