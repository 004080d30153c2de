#include "common/host/memory_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/host/process_memory.h"

namespace tandem::host {
namespace {

std::string Size(int64_t bytes) {
  const auto mebibytes = static_cast<double>(bytes) / (1 << 20);
  return mebibytes < 1024 ? absl::StrFormat("%.1f MiB", mebibytes)
                          : absl::StrFormat("%.1f GiB", mebibytes / 1024);
}

// Reads "NAME 1234" from a file of such lines; 0 if there is none.
int64_t NumberIn(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  int64_t number = 0;
  for (std::string word; file >> word;) {
    if (word == name && file >> number) return number;
  }
  return 0;
}

struct GroupLimit {
  int64_t bytes = std::numeric_limits<int64_t>::max();
  std::string file;
};

// The lowest limit of the group and its ancestors; its file is empty if there is none.
GroupLimit LowestLimit(const ControlGroupPlace& place) {
  GroupLimit lowest;
  const auto consider = [&lowest](const std::string& file) {
    int64_t bytes = 0;
    if (!absl::SimpleAtoi(FirstLine(file), &bytes) || bytes >= lowest.bytes) return;
    lowest = {bytes, file};
  };
  for (const std::string& folder : ControlGroups("", place)) consider(folder + "/memory.max");
  for (const std::string& folder : ControlGroups("memory", place)) {
    consider(folder + "/memory.limit_in_bytes");
  }
  // Version 1 encodes "none" as a number beyond all memory.
  if (lowest.bytes > int64_t{1} << 60) return {};
  return lowest;
}

std::string Describe(const GroupLimit& limit) {
  const size_t slash = limit.file.rfind('/');
  return absl::StrCat(limit.file.substr(slash + 1), " of ", limit.file.substr(0, slash), " is ",
                      Size(limit.bytes));
}

}  // namespace

std::string DescribeMemoryLimits(const ControlGroupPlace& place) {
  std::vector<std::string> parts = {absl::StrCat(Size(ResidentBytes()), " are resident")};
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
    parts.push_back(
        absl::StrCat("ulimit -v (RLIMIT_AS) allows ", Size(static_cast<int64_t>(space.rlim_cur))));
  }
  if (const GroupLimit limit = LowestLimit(place); !limit.file.empty()) {
    parts.push_back(Describe(limit));
  }
  parts.push_back(absl::StrCat("the host has ", Size(AvailableHostBytes()), " left"));
  return absl::StrJoin(parts, "; ");
}

MemoryKills CountMemoryKills(const ControlGroupPlace& place, const std::string& vmstat) {
  MemoryKills kills;
  // The outermost group counts those of the inner ones too, but also those of other processes.
  for (const std::string& folder : ControlGroups("", place)) {
    kills.in_group = NumberIn(folder + "/memory.events", "oom_kill");
    if (std::ifstream(folder + "/memory.events").is_open()) break;
  }
  for (const std::string& folder : ControlGroups("memory", place)) {
    kills.in_group = std::max(kills.in_group, NumberIn(folder + "/memory.oom_control", "oom_kill"));
    if (std::ifstream(folder + "/memory.oom_control").is_open()) break;
  }
  kills.on_host = NumberIn(vmstat, "oom_kill");
  return kills;
}

std::string DescribeMemoryKill(const MemoryKills& before, const MemoryKills& now,
                               const ControlGroupPlace& place) {
  if (now.in_group > before.in_group) {
    const GroupLimit limit = LowestLimit(place);
    return absl::StrCat(
        "the kernel killed a process of this control group: out of memory (oom_kill ", now.in_group,
        limit.file.empty() ? "" : ", ", limit.file.empty() ? "" : Describe(limit), "); ",
        kLowerMemory);
  }
  if (now.on_host > before.on_host) {
    return absl::StrCat("the kernel killed a process of this host: out of memory (oom_kill ",
                        now.on_host, ", the host has ", Size(TotalHostBytes()), "); ",
                        kLowerMemory);
  }
  return "";
}

}  // namespace tandem::host
