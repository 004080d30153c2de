#include "tools/tandem/gpu_check/run_child.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/io/read_file.h"
#include "common/rpc/child_process.h"

namespace tandem::gpu_check {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(200);
constexpr absl::Duration kGrace = absl::Seconds(3);
constexpr int kShownLines = 12;

bool IsObject(absl::string_view line) {
  return absl::StartsWith(absl::StripAsciiWhitespace(line), "{");
}

// The program's status, without its log.
absl::Status Finish(rpc::ChildProcess& child, const ChildCommand& command, absl::Time start) {
  while (!child.Wait(std::min(kPoll, command.deadline - absl::Now()))) {
    if (command.interrupted && command.interrupted()) {
      child.Stop(kGrace);
      return absl::CancelledError("interrupted");
    }
    if (absl::Now() < command.deadline) continue;
    const absl::Duration ran = absl::Trunc(absl::Now() - start, absl::Seconds(1));
    child.Stop(kGrace);
    return absl::DeadlineExceededError(absl::StrCat(child.name(), " was ended after ",
                                                    absl::FormatDuration(ran), ", its time limit"));
  }
  return child.ExitStatus();
}

}  // namespace

std::vector<nlohmann::json> ObjectsOf(const std::string& text) {
  std::vector<nlohmann::json> objects;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (!IsObject(line)) continue;
    nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (object.is_object()) objects.push_back(std::move(object));
  }
  return objects;
}

std::string LastLines(const std::string& text, int count) {
  std::vector<absl::string_view> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    if (!IsObject(line)) lines.push_back(line);
  }
  const auto dropped = std::max<std::ptrdiff_t>(0, std::ssize(lines) - count);
  return absl::StrJoin(lines.begin() + dropped, lines.end(), "\n");
}

ChildOutput RunChild(const ChildCommand& command) {
  std::error_code ignored;
  std::filesystem::remove(command.log_path, ignored);
  const absl::Time start = absl::Now();
  rpc::ChildProcessOptions options;
  options.name = std::filesystem::path(command.argv[0]).filename().string();
  options.argv = command.argv;
  options.environment = command.environment;
  options.log_path = command.log_path;
  auto child = rpc::ChildProcess::Start(std::move(options));
  if (!child.ok()) return {child.status(), {}};
  absl::Status status = Finish(**child, command, start);
  child->reset();
  const std::string log = io::ReadFile(command.log_path).value_or("");
  if (!status.ok()) {
    if (const std::string last = LastLines(log, kShownLines); !last.empty()) {
      status = absl::Status(status.code(), absl::StrCat(status.message(), "\n", last));
    }
  }
  return {std::move(status), ObjectsOf(log)};
}

}  // namespace tandem::gpu_check
