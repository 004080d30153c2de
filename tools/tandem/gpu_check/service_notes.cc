#include "tools/tandem/gpu_check/service_notes.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/io/read_file.h"

namespace tandem::gpu_check {
namespace {

// The value of the last field `key` of a line: of key=value or key="some words".
std::string FieldOf(absl::string_view line, absl::string_view key) {
  const std::string start = absl::StrCat(" ", key, "=");
  const size_t at = line.rfind(start);
  if (at == line.npos) return "";
  absl::string_view rest = line.substr(at + start.size());
  if (!absl::StartsWith(rest, "\"")) return std::string(rest.substr(0, rest.find(' ')));
  rest.remove_prefix(1);
  return std::string(rest.substr(0, rest.find('"')));
}

}  // namespace

std::string ServiceNotes::process_on_cpu() const {
  for (const auto& [process, device] : devices) {
    if (absl::StartsWith(device, "cpu")) return process;
  }
  return "";
}

void ReadServiceLog(absl::string_view process, absl::string_view log, ServiceNotes& notes) {
  for (const absl::string_view line : absl::StrSplit(log, '\n', absl::SkipEmpty())) {
    // The first line with a device is the start's, which describes it best.
    if (const std::string device = FieldOf(line, "device"); !device.empty()) {
      notes.devices.emplace(process, device);
    }
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::MaxSplits(' ', 2));
    if (words.size() == 3 && words[1] == "WARNING") {
      notes.warnings.push_back(absl::StrCat(process, ": ", words[2]));
    }
  }
}

ServiceNotes ReadServiceNotes(const std::string& run_dir) {
  std::vector<std::filesystem::path> logs;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(run_dir + "/logs", ignored)) {
    if (entry.path().extension() == ".log") logs.push_back(entry.path());
  }
  std::sort(logs.begin(), logs.end());
  ServiceNotes notes;
  for (const std::filesystem::path& log : logs) {
    ReadServiceLog(log.stem().string(), io::ReadFile(log.string()).value_or(""), notes);
  }
  return notes;
}

}  // namespace tandem::gpu_check
