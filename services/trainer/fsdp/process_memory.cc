#include "services/trainer/fsdp/process_memory.h"

#include <fstream>
#include <string>

namespace tandem::trainer {
namespace {

// "VmHWM:      1234 kB" of /proc/self/status. getrusage() would count what the process was before
// it became this program.
int64_t StatusBytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    int64_t kilobytes = 0;
    if (word == key && file >> kilobytes) return kilobytes << 10;
  }
  return 0;
}

}  // namespace

int64_t PeakResidentBytes() { return StatusBytes("VmHWM:"); }
int64_t ResidentBytes() { return StatusBytes("VmRSS:"); }

}  // namespace tandem::trainer
