// The environment that c10d's backends run in.
#ifndef TANDEM_COMMON_COMM_C10D_ENVIRONMENT_H_
#define TANDEM_COMMON_COMM_C10D_ENVIRONMENT_H_

#include <cstdlib>

namespace tandem::comm {

// Before main(), while there is one thread: a setenv() beside another thread's getenv() is a race.
inline const bool kC10dEnvironmentIsSet = [] {
  // c10d's recorder of operations, one for all groups of a process, takes a group's first
  // operation down outside its lock: two groups that begin at once end the process now and then.
  // Nothing here reads it.
  setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);
  unsetenv("TORCH_NCCL_TRACE_BUFFER_SIZE");  // its former name, which c10d warns of
  // Without these c10d ends the process when an NCCL operation fails; what a user has set stays.
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/0);
  setenv("TORCH_NCCL_ENABLE_MONITORING", "0", /*overwrite=*/0);
  return true;
}();

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_C10D_ENVIRONMENT_H_
