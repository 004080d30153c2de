// ReplicaRanks: connects the processes of one replica and checks that they have equal setups.
//
//   ASSIGN_OR_RETURN(auto ranks, ReplicaRanks::Join(config, environment, device));
//   ...   // makes model and engine over ranks->group(); serves
//   if (ranks->group().rank() == 0) {
//     ASSIGN_OR_RETURN(auto addresses, ranks->AwaitAddresses(description));
//   } else {
//     RETURN_IF_ERROR(ranks->TellAddress(address, description));
//   }
#ifndef TANDEM_SERVICES_ROLLOUT_SERVICE_REPLICA_RANKS_H_
#define TANDEM_SERVICES_ROLLOUT_SERVICE_REPLICA_RANKS_H_

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/comm/launch_environment.h"
#include "common/comm/process_group.h"
#include "services/rollout/engine/cache_size.h"
#include "services/rollout/ranks/rank_group.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::rollout {

// INVALID_ARGUMENT if the launcher's number of ranks differs from the configuration's, or there is
// no rendezvous port.
absl::Status CheckEnvironment(const config::v1::RunConfig& config,
                              const comm::LaunchEnvironment& environment);

// Returns as text what must be equal on all ranks of a replica.
std::string DescribeRank(const model::Transformer& model, const CacheSize& size);

class ReplicaRanks {
 public:
  // Rank 0 serves the rendezvous and logs every 10 s who is missing. Blocks until all have joined, at
  // most five minutes; DEADLINE_EXCEEDED names the missing. The others end soon with UNAVAILABLE,
  // which names rank 0's address, if rank 0 ends after their roll call. `device`: this rank's
  // compute device; errors: also those of CheckDevice().
  static absl::StatusOr<std::unique_ptr<ReplicaRanks>> Join(
      const config::v1::RunConfig& config, const comm::LaunchEnvironment& environment,
      at::Device device);

  RankGroup& group() { return *group_; }

  // Ranks other than 0: sends `address`, that of this rank's server, to rank 0.
  absl::Status TellAddress(const std::string& address, const std::string& description);
  // Rank 0: returns the others' addresses, rank 1 first. FAILED_PRECONDITION names a rank whose
  // description differs from `description`.
  absl::StatusOr<std::vector<std::string>> AwaitAddresses(const std::string& description);

 private:
  comm::Rendezvous rendezvous_;
  std::unique_ptr<comm::StoreServer> server_;  // rank 0 only
  std::unique_ptr<comm::StoreClient> client_;
  std::unique_ptr<RankGroup> group_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SERVICE_REPLICA_RANKS_H_
