#include "common/host/process_memory.h"

#include <fstream>
#include <string>

namespace tandem::host {
namespace {

// Reads "NAME:      1234 kB" from a file of /proc.
int64_t BytesIn(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    int64_t kilobytes = 0;
    if (word == name && file >> kilobytes) return kilobytes << 10;
  }
  return 0;
}

}  // namespace

// getrusage() would include what the process used before it executed this program.
int64_t PeakResidentBytes() { return BytesIn("/proc/self/status", "VmHWM:"); }
int64_t ResidentBytes() { return BytesIn("/proc/self/status", "VmRSS:"); }

int64_t AvailableHostBytes() { return BytesIn("/proc/meminfo", "MemAvailable:"); }
int64_t TotalHostBytes() { return BytesIn("/proc/meminfo", "MemTotal:"); }

}  // namespace tandem::host
