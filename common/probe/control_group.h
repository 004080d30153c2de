// The control groups that this process is in: what a container or a pod may use of its host.
#ifndef TANDEM_COMMON_PROBE_CONTROL_GROUP_H_
#define TANDEM_COMMON_PROBE_CONTROL_GROUP_H_

#include <string>
#include <vector>

namespace tandem::probe {

// Where a process finds its groups; another place in tests.
struct ControlGroupPlace {
  std::string membership = "/proc/self/cgroup";
  std::string root = "/sys/fs/cgroup";
};

// Folders of the group of version 2 that the process is in, or of the group of version 1 that a
// controller ("cpu", "memory") has it in, and of those above it, whose limits hold as well;
// innermost first. A folder may not be there: a container sees its own as the root.
std::vector<std::string> ControlGroups(const std::string& controller = "",
                                       const ControlGroupPlace& place = {});

// The first line of a file; empty where it cannot be read.
std::string FirstLine(const std::string& path);

// Cores that this process may keep busy, at least 1: those that it may run on, and no more than the
// quota of its control group (of either version) comes to. A process with more threads than that
// is stopped for the rest of each period of its quota.
int UsableCores(const ControlGroupPlace& place = {});

}  // namespace tandem::probe

#endif  // TANDEM_COMMON_PROBE_CONTROL_GROUP_H_
