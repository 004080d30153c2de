// The process's control groups: what a container or a pod may use of its host.
#ifndef TANDEM_COMMON_HOST_CONTROL_GROUP_H_
#define TANDEM_COMMON_HOST_CONTROL_GROUP_H_

#include <string>
#include <vector>

namespace tandem::host {

// The paths that describe a process's groups; tests use others.
struct ControlGroupPlace {
  std::string membership = "/proc/self/cgroup";
  std::string root = "/sys/fs/cgroup";
};

// Returns the folders of the process's group of version 2, or of its version 1 group for a
// controller ("cpu", "memory"), and of that group's ancestors, whose limits apply as well;
// innermost first. A folder may not exist: a container sees its own group as the root.
std::vector<std::string> ControlGroups(const std::string& controller = "",
                                       const ControlGroupPlace& place = {});

// Returns the first line of a file; empty if it cannot be read.
std::string FirstLine(const std::string& path);

// Cores that this process may keep busy, at least 1: its CPU affinity, capped by the quota of its
// control group (of either version). The kernel throttles a process with more busy threads for the
// rest of each quota period.
int UsableCores(const ControlGroupPlace& place = {});

}  // namespace tandem::host

#endif  // TANDEM_COMMON_HOST_CONTROL_GROUP_H_
