#include "tools/tandem/driver/run_trace.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "common/status/status_macros.h"
#include "common/telemetry/trace.h"

namespace tandem::driver {
namespace {

constexpr char kSuffix[] = ".trace.json";

}  // namespace

void StartRunTrace(const std::string& run_dir) {
  std::error_code ignored;
  // An error shows when the trace is written.
  std::filesystem::create_directories(run_dir + "/logs", ignored);
  telemetry::StartTrace({.path = run_dir + "/logs/driver" + kSuffix, .process_name = "driver"});
  telemetry::NameTraceThread("steps");
}

absl::Status WriteRunTrace(const std::string& run_dir) {
  RETURN_IF_ERROR(telemetry::StopTrace());
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(run_dir + "/logs", error)) {
    if (absl::EndsWith(entry.path().string(), kSuffix)) paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  RETURN_IF_ERROR(telemetry::MergeTraces(paths, run_dir + "/trace.json"));
  for (const std::string& path : paths) std::filesystem::remove(path, error);
  return absl::OkStatus();
}

}  // namespace tandem::driver
