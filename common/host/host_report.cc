#include "common/host/host_report.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/host/control_group.h"
#include "common/host/process_memory.h"

namespace tandem::host {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Reads a number from a control group's file; `otherwise` if there is none, or "max".
int64_t NumberIn(const std::string& path, int64_t otherwise) {
  int64_t value = 0;
  return absl::SimpleAtoi(FirstLine(path), &value) ? value : otherwise;
}

// Reads "NAME 1234" from memory.stat.
int64_t StatOf(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  int64_t value = 0;
  for (std::string word; file >> word >> value;) {
    if (word == name) return value;
  }
  return 0;
}

struct Allowance {
  int64_t limit = kNoLimit;
  int64_t left = kNoLimit;
};

// The kernel reclaims inactive file pages before the limit matters.
Allowance AllowanceOf(const std::string& folder, const char* limit, const char* usage,
                      const char* inactive) {
  Allowance out;
  out.limit = NumberIn(folder + limit, kNoLimit);
  // Version 1 encodes "none" as a number beyond all memory.
  if (out.limit > kNoLimit / 2) return {};
  const int64_t used = NumberIn(folder + usage, 0) - StatOf(folder + "/memory.stat", inactive);
  out.left = std::max<int64_t>(0, out.limit - used);
  return out;
}

// The allowance of the process's control group or of an ancestor, of either version.
Allowance GroupAllowance() {
  Allowance out;
  const auto apply = [&out](const Allowance& here) {
    out.limit = std::min(out.limit, here.limit);
    out.left = std::min(out.left, here.left);
  };
  for (const std::string& folder : ControlGroups()) {
    apply(AllowanceOf(folder, "/memory.max", "/memory.current", "inactive_file"));
  }
  for (const std::string& folder : ControlGroups("memory")) {
    apply(AllowanceOf(folder, "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                      "total_inactive_file"));
  }
  return out;
}

}  // namespace

diagnostics::v1::HostReport DescribeHost() {
  diagnostics::v1::HostReport out;
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) == 0) out.set_hostname(name.data());
  out.set_machine_id(FirstLine("/proc/sys/kernel/random/boot_id"));
  struct stat network {};
  if (stat("/proc/self/ns/net", &network) == 0) {
    out.set_network_id(absl::StrCat(out.machine_id(), "/", network.st_ino));
  }
  const Allowance allowance = GroupAllowance();
  out.set_available_bytes(std::min(AvailableHostBytes(), allowance.left));
  out.set_total_bytes(std::min(TotalHostBytes(), allowance.limit));
  return out;
}

}  // namespace tandem::host
