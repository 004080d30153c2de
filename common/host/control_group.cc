#include "common/host/control_group.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <thread>

namespace tandem::host {
namespace {

// Caps `cores` at the quota's whole cores; a `quota` that is no number sets no limit.
void LimitBy(const std::string& quota, const std::string& period, int& cores) {
  std::istringstream numbers(quota + " " + period);
  int64_t used = 0, of = 0;
  if (!(numbers >> used >> of) || used <= 0 || of <= 0) return;
  cores = static_cast<int>(std::clamp<int64_t>(used / of, 1, cores));
}

}  // namespace

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<std::string> ControlGroups(const std::string& controller,
                                       const ControlGroupPlace& place) {
  std::string path;
  std::ifstream groups(place.membership);
  for (std::string line; std::getline(groups, line);) {  // "4:cpu,cpuacct:/a/b", "0::/a/b"
    const size_t names = line.find(':') + 1;
    const size_t end = line.find(':', names);
    if (names == 0 || end == std::string::npos) continue;
    const std::string list = "," + line.substr(names, end - names) + ",";
    if (list.find("," + controller + ",") != std::string::npos) path = line.substr(end + 1);
  }
  const std::string root = controller.empty() ? place.root : place.root + "/" + controller;
  std::vector<std::string> folders;
  while (!path.empty() && path != "/") {
    folders.push_back(root + path);
    path.resize(path.rfind('/'));
  }
  folders.push_back(root);
  return folders;
}

int UsableCores(const ControlGroupPlace& place) {
  int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (const std::string& folder : ControlGroups("", place)) {
    std::istringstream words(FirstLine(folder + "/cpu.max"));  // "max 100000" or "150000 100000"
    std::string quota, period;
    words >> quota >> period;
    LimitBy(quota, period, cores);
  }
  for (const std::string& folder : ControlGroups("cpu", place)) {
    LimitBy(FirstLine(folder + "/cpu.cfs_quota_us"), FirstLine(folder + "/cpu.cfs_period_us"),
            cores);
  }
  return cores;
}

}  // namespace tandem::host
