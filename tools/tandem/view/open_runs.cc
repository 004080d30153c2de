#include "tools/tandem/view/open_runs.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::view {
namespace {

namespace fs = std::filesystem;

// The page polls every run and draws a line of each in every chart.
constexpr size_t kMaxRuns = 64;

bool IsRun(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "config.yaml", error);
}

// The path itself if it is a run or holds none, which RunReader::Open() reports.
std::vector<std::string> RunsIn(const std::string& path) {
  std::vector<std::string> runs;
  std::error_code error;
  if (!IsRun(path)) {
    for (const auto& entry : fs::directory_iterator(path, error)) {
      if (IsRun(entry.path())) runs.push_back(entry.path().string());
    }
  }
  if (runs.empty()) return {path};
  std::sort(runs.begin(), runs.end());
  return runs;
}

std::string FolderName(const std::string& path) {
  fs::path folder = fs::absolute(path).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // "runs/a/"
  return folder.filename().string();
}

}  // namespace

absl::StatusOr<std::vector<ViewedRun>> OpenRuns(const std::vector<std::string>& paths,
                                                const std::string& inspect_program) {
  std::vector<std::string> folders;
  std::set<std::string> known;
  for (const std::string& path : paths) {
    for (const std::string& folder : RunsIn(path)) {
      std::error_code error;
      const fs::path real = fs::weakly_canonical(folder, error);
      if (known.insert(error ? folder : real.string()).second) folders.push_back(folder);
    }
  }
  if (folders.size() > kMaxRuns) {
    return absl::InvalidArgumentError(absl::StrCat("found ", folders.size(), " runs; at most ",
                                                   kMaxRuns,
                                                   " can be compared: name fewer folders"));
  }
  std::map<std::string, int> uses;
  for (const std::string& folder : folders) ++uses[FolderName(folder)];
  std::vector<ViewedRun> runs;
  for (const std::string& folder : folders) {
    ViewedRun run;
    run.name = FolderName(folder);
    if (uses[run.name] > 1) run.name = fs::path(folder).lexically_normal().string();
    ASSIGN_OR_RETURN(run.reader, RunReader::Open(folder));
    run.inspector = std::make_unique<Inspector>(*run.reader, inspect_program);
    runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace tandem::view
