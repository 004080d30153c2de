// Memory that the process uses and that the machine has.
#ifndef TANDEM_COMMON_HOST_PROCESS_MEMORY_H_
#define TANDEM_COMMON_HOST_PROCESS_MEMORY_H_

#include <cstdint>

namespace tandem::host {

// All values are in bytes; 0 if the system does not report them.

// Peak resident size since the program started: private memory and touched pages of files and of
// shared memory.
int64_t PeakResidentBytes();
// Current resident size.
int64_t ResidentBytes();

// Memory that the host has available, and its total. Control groups may allow less.
int64_t AvailableHostBytes();
int64_t TotalHostBytes();

}  // namespace tandem::host

#endif  // TANDEM_COMMON_HOST_PROCESS_MEMORY_H_
