// Sets the environment variables that c10d's backends read.
#ifndef TANDEM_COMMON_COMM_C10D_ENVIRONMENT_H_
#define TANDEM_COMMON_COMM_C10D_ENVIRONMENT_H_

#include <cstdlib>

namespace tandem::comm {

// Runs before main(), while there is one thread: setenv() races with other threads' getenv().
inline const bool kC10dEnvironmentIsSet = [] {
  // Turns off c10d's flight recorder, which is shared by all groups of a process. It records a
  // group's first operation outside its lock, so two groups that start at the same time sometimes
  // crash the process. Nothing here reads the recorder.
  setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);
  unsetenv("TORCH_NCCL_TRACE_BUFFER_SIZE");  // its old name, about which c10d warns
  return true;
}();

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_C10D_ENVIRONMENT_H_
