// Thread count and CPU pinning of a rollout rank.
#ifndef TANDEM_SERVICES_ROLLOUT_SERVICE_RANK_THREADS_H_
#define TANDEM_SERVICES_ROLLOUT_SERVICE_RANK_THREADS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "common/comm/launch_environment.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::rollout {

// Sets the process's number of threads, before ATen's first parallel region: as configured, else
// the pinned CPUs, else the usable cores divided by the replica's ranks on this machine. Returns
// the CPUs to pin the engine's threads to, one each; none if rollout.cpus is empty.
// INVALID_ARGUMENT names rollout.cpus if the process may not use them, or there are too few.
absl::StatusOr<std::vector<int>> SetThreads(const config::v1::RolloutConfig& rollout,
                                            const comm::LaunchEnvironment& environment);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SERVICE_RANK_THREADS_H_
