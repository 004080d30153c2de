#include "common/checkpoint/checkpoint_folders.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"

namespace tandem::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "step-";

absl::Status Remove(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat(path.string(), ": cannot remove"));
}

}  // namespace

std::string CheckpointName(int64_t step) { return absl::StrCat(kPrefix, step); }

std::vector<RunCheckpoint> ListCheckpoints(const std::string& folder) {
  std::vector<RunCheckpoint> out;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    int64_t step = 0;
    if (!absl::StartsWith(name, kPrefix)) continue;
    if (!absl::SimpleAtoi(name.substr(sizeof(kPrefix) - 1), &step)) continue;
    if (CheckpointName(step) == name) out.push_back({step, it->path().string()});
  }
  std::sort(out.begin(), out.end(),
            [](const RunCheckpoint& a, const RunCheckpoint& b) { return a.step > b.step; });
  return out;
}

absl::Status RemoveOldCheckpoints(const std::string& folder, int64_t step, int64_t keep_last) {
  if (keep_last <= 0) return absl::OkStatus();
  int64_t kept = 0;
  for (const RunCheckpoint& found : ListCheckpoints(folder)) {
    if (found.step > step || ++kept <= keep_last) continue;
    if (!kCheckpointFolder.is_one(found.path)) continue;  // not a checkpoint, or a damaged one
    const fs::path path(found.path);
    const fs::path aside =
        path.parent_path() / absl::StrCat(".", path.filename().string(), ".removed");
    std::error_code error;
    fs::rename(path, aside, error);
    if (error) {
      return absl::ErrnoToStatus(error.value(), absl::StrCat(found.path, ": cannot move aside"));
    }
    if (absl::Status status = Remove(aside); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status RemoveUnfinished(const std::string& folder) {
  std::vector<fs::path> unfinished;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (absl::StartsWith(name, ".") &&
        (absl::StrContains(name, ".tmp-") || absl::EndsWith(name, ".removed"))) {
      unfinished.push_back(it->path());
    }
  }
  for (const fs::path& path : unfinished) {
    if (absl::Status status = Remove(path); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace tandem::checkpoint
