// What the process holds of the machine's memory, and what the machine has.
#ifndef TANDEM_COMMON_TELEMETRY_PROCESS_MEMORY_H_
#define TANDEM_COMMON_TELEMETRY_PROCESS_MEMORY_H_

#include <cstdint>

namespace tandem::telemetry {

// All in bytes; 0 where the system does not say.

// The most that was resident at once since the program began: private memory and the pages of files
// and of shared memory that it looked at.
int64_t PeakResidentBytes();
// Now.
int64_t ResidentBytes();

// What the host could still give, and what it has. Control groups may allow less.
int64_t AvailableHostBytes();
int64_t TotalHostBytes();

}  // namespace tandem::telemetry

#endif  // TANDEM_COMMON_TELEMETRY_PROCESS_MEMORY_H_
