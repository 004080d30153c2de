// Reads a process's place in a group from its launcher's environment: torchrun's variables, with
// fallbacks for Slurm, LeaderWorkerSet and a StatefulSet's ordinal.
#ifndef TANDEM_COMMON_COMM_LAUNCH_ENVIRONMENT_H_
#define TANDEM_COMMON_COMM_LAUNCH_ENVIRONMENT_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::comm {

struct LaunchEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;  // ranks on this host
  std::string master_host = "127.0.0.1";
  int master_port = 0;  // 0 if the world has one rank and no port is set
  // Secret that every rank proves to know at the rendezvous; empty: anyone who reaches it may join.
  std::string group_secret;
};

// `get_env` returns a variable's value or nullopt. Reads RANK, LOCAL_RANK, WORLD_SIZE,
// LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and TANDEM_GROUP_SECRET; else SLURM_PROCID,
// SLURM_NTASKS, SLURM_LOCALID and SLURM_NTASKS_PER_NODE; else LWS_WORKER_INDEX, LWS_GROUP_SIZE and
// LWS_LEADER_ADDRESS; else the ordinal at the end of POD_NAME with WORLD_SIZE. INVALID_ARGUMENT
// names the variable that is missing, not a number, or out of range.
absl::StatusOr<LaunchEnvironment> ReadLaunchEnvironment(
    const std::function<std::optional<std::string>(const std::string&)>& get_env);

// Reads this process's environment.
absl::StatusOr<LaunchEnvironment> ReadLaunchEnvironment();

// INVALID_ARGUMENT if there are several ranks and no secret although the process uses TLS: anyone
// who reaches the rendezvous could join without a certificate.
absl::Status CheckGroupSecret(const LaunchEnvironment& environment, bool has_tls);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_LAUNCH_ENVIRONMENT_H_
