#include "common/telemetry/trace.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/io/atomic_file.h"
#include "common/io/parse_json.h"

namespace tandem::telemetry {
namespace {

struct Span {
  std::string name;
  std::string arguments;
  int64_t thread = 0;
  double start_us = 0;
  double duration_us = 0;
  TraceContext context;  // not valid where the span belongs to no trace
  uint64_t parent = 0;
};

// The inside of a JSON object.
std::string ToText(Fields arguments) {
  std::string out;
  for (const Field& field : arguments) {
    absl::StrAppend(&out, out.empty() ? "" : ",", FieldValue(field.key).ToJson(), ":",
                    field.value.ToJson());
  }
  return out;
}

std::string ArgumentsOf(const Span& span) {
  std::string out = span.arguments;
  if (!span.context.valid()) return out;
  absl::StrAppend(&out, out.empty() ? "" : ",", "\"trace_id\":\"", span.context.TraceId(),
                  "\",\"span_id\":\"", SpanId(span.context.span), "\"");
  if (span.parent != 0) absl::StrAppend(&out, ",\"parent_id\":\"", SpanId(span.parent), "\"");
  return out;
}

struct Recorder {
  std::atomic<bool> enabled{false};
  absl::Mutex mu;
  TraceOptions options ABSL_GUARDED_BY(mu);
  std::vector<Span> spans ABSL_GUARDED_BY(mu);
  int64_t num_dropped ABSL_GUARDED_BY(mu) = 0;
  std::map<int64_t, std::string> thread_names ABSL_GUARDED_BY(mu);
  absl::Mutex write_mu;  // one writer of the file at a time; taken before mu
};

// Never destroyed: threads end spans while the process exits.
Recorder& GetRecorder() {
  static Recorder* recorder = new Recorder;
  return *recorder;
}

int64_t ThreadId() {
  static thread_local const int64_t id = syscall(SYS_gettid);
  return id;
}

// The wall clock sets the trace's start, the steady clock times within it: adjusting the wall clock
// must not distort spans.
double NowMicroseconds() {
  using std::chrono::duration;
  using std::chrono::steady_clock;
  using std::chrono::system_clock;
  static const double origin_us = [] {
    const duration<double, std::micro> wall = system_clock::now().time_since_epoch();
    const duration<double, std::micro> steady = steady_clock::now().time_since_epoch();
    return wall.count() - steady.count();
  }();
  const duration<double, std::micro> steady = steady_clock::now().time_since_epoch();
  return origin_us + steady.count();
}

void Keep(Recorder& recorder, Span span) {
  absl::MutexLock lock(&recorder.mu);
  if (!recorder.enabled) return;
  if (static_cast<int64_t>(recorder.spans.size()) >= recorder.options.max_spans) {
    ++recorder.num_dropped;
    return;
  }
  recorder.spans.push_back(std::move(span));
}

std::string Metadata(absl::string_view kind, int64_t thread, absl::string_view name) {
  return absl::StrFormat(R"({"ph":"M","name":"%s","pid":%d,"tid":%d,"args":{"name":%s}})", kind,
                         getpid(), thread, FieldValue(name).ToJson());
}

std::string TraceText(Recorder& recorder) {
  absl::MutexLock lock(&recorder.mu);
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  absl::StrAppend(&out, Metadata("process_name", getpid(), recorder.options.process_name));
  for (const auto& [thread, name] : recorder.thread_names) {
    absl::StrAppend(&out, ",\n", Metadata("thread_name", thread, name));
  }
  for (const Span& span : recorder.spans) {
    absl::StrAppendFormat(
        &out, ",\n{\"ph\":\"X\",\"name\":%s,\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f",
        FieldValue(span.name).ToJson(), getpid(), span.thread, span.start_us, span.duration_us);
    const std::string arguments = ArgumentsOf(span);
    if (!arguments.empty()) absl::StrAppend(&out, ",\"args\":{", arguments, "}");
    out += '}';
  }
  absl::StrAppend(&out, "\n],\"otherData\":{\"dropped_spans\":\"", recorder.num_dropped, "\"}}\n");
  return out;
}

}  // namespace

void StartTrace(TraceOptions options) {
  Recorder& recorder = GetRecorder();
  absl::MutexLock lock(&recorder.mu);
  recorder.options = std::move(options);
  recorder.spans.clear();
  recorder.num_dropped = 0;
  recorder.enabled = true;
}

absl::Status WriteTrace() {
  Recorder& recorder = GetRecorder();
  if (!recorder.enabled) return absl::OkStatus();
  absl::MutexLock write_lock(&recorder.write_mu);
  std::string path;
  {
    absl::MutexLock lock(&recorder.mu);
    path = recorder.options.path;
  }
  return io::WriteFileAtomically(path, TraceText(recorder));
}

absl::Status StopTrace() {
  absl::Status written = WriteTrace();
  Recorder& recorder = GetRecorder();
  absl::MutexLock lock(&recorder.mu);
  recorder.enabled = false;
  recorder.spans.clear();
  return written;
}

bool TraceEnabled() { return GetRecorder().enabled.load(std::memory_order_relaxed); }

void NameTraceThread(std::string name) {
  Recorder& recorder = GetRecorder();
  absl::MutexLock lock(&recorder.mu);
  recorder.thread_names[ThreadId()] = std::move(name);
}

absl::Status MergeTraces(const std::vector<std::string>& paths, const std::string& output) {
  nlohmann::json merged = {{"displayTimeUnit", "ms"}, {"traceEvents", nlohmann::json::array()}};
  for (const std::string& path : paths) {
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto trace = io::ParseJson<nlohmann::json>(text);
    if (!trace.ok() || !trace->is_object() || !trace->contains("traceEvents") ||
        !trace->at("traceEvents").is_array()) {
      LogWarning("trace skipped in the merged trace", {{"path", path}});
      continue;
    }
    for (const auto& event : trace->at("traceEvents")) merged["traceEvents"].push_back(event);
  }
  constexpr auto kReplaceBadUtf8 = nlohmann::json::error_handler_t::replace;
  return io::WriteFileAtomically(output, merged.dump(-1, ' ', false, kReplaceBadUtf8) + "\n");
}

void RecordSpan(absl::string_view name, absl::Time start, const TraceContext& context,
                uint64_t parent, Fields arguments) {
  if (!TraceEnabled()) return;
  const double duration_us = absl::ToDoubleMicroseconds(absl::Now() - start);
  Keep(GetRecorder(), {std::string(name), ToText(arguments), ThreadId(),
                       NowMicroseconds() - duration_us, duration_us, context, parent});
}

void ScopedSpan::Begin(absl::string_view name, Fields arguments) {
  name_ = std::string(name);
  arguments_ = ToText(arguments);
  TraceContext own = CurrentTraceContext();
  if (own.valid()) {
    parent_ = own.span;
    own.span = NewSpanId();
    context_.emplace(own);
  }
  start_us_ = NowMicroseconds();
}

void ScopedSpan::End() {
  const double end_us = NowMicroseconds();
  const TraceContext own = context_.has_value() ? CurrentTraceContext() : TraceContext{};
  context_.reset();
  Keep(GetRecorder(), {std::move(name_), std::move(arguments_), ThreadId(), start_us_,
                       end_us - start_us_, own, parent_});
}

}  // namespace tandem::telemetry
