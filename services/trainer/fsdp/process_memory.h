// What the process holds of the machine's memory.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_PROCESS_MEMORY_H_
#define TANDEM_SERVICES_TRAINER_FSDP_PROCESS_MEMORY_H_

#include <cstdint>

namespace tandem::trainer {

// The most that was resident at once since the program began, in bytes: private memory and the
// pages of files and of shared memory that it looked at. 0 where the system does not say.
int64_t PeakResidentBytes();
// Now.
int64_t ResidentBytes();

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_PROCESS_MEMORY_H_
