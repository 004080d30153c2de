// How many threads a rank of a rollout has, and where they run.
#ifndef TANDEM_SERVICES_ROLLOUT_SERVICE_RANK_THREADS_H_
#define TANDEM_SERVICES_ROLLOUT_SERVICE_RANK_THREADS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "common/comm/launch_environment.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::rollout {

// Sets the process's number of threads, before ATen's first parallel region: as configured, or the
// cores that it may use, shared among a replica's ranks on this machine. Returns the CPUs that the
// engine's are to be pinned to, one each; none where rollout.cpus is empty. INVALID_ARGUMENT names
// rollout.cpus where the process may not use them, or they are too few.
absl::StatusOr<std::vector<int>> SetThreads(const config::v1::RolloutConfig& rollout,
                                            const comm::LaunchEnvironment& environment);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SERVICE_RANK_THREADS_H_
