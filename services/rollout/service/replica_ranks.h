// ReplicaRanks: how the processes of one replica find each other, and whether they are alike.
//
//   ASSIGN_OR_RETURN(auto ranks, ReplicaRanks::Join(config, environment, device));
//   ... make model and engine over ranks->group(); serve ...
//   rank 0:  ASSIGN_OR_RETURN(auto addresses, ranks->AwaitAddresses(description, deadline));
//   others:  RETURN_IF_ERROR(ranks->TellAddress(address, description));
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

// INVALID_ARGUMENT where the launcher's number of ranks is not the configuration's, or there is no
// port to meet at.
absl::Status CheckEnvironment(const config::v1::RunConfig& config,
                              const comm::LaunchEnvironment& environment);

// What must be equal on all ranks of a replica, as text.
std::string DescribeRank(const model::Transformer& model, const CacheSize& size);

class ReplicaRanks {
 public:
  // Rank 0 serves the rendezvous. Returns when all have joined, or after five minutes. `device`:
  // what this rank computes on; the errors of CheckDevice().
  static absl::StatusOr<std::unique_ptr<ReplicaRanks>> Join(
      const config::v1::RunConfig& config, const comm::LaunchEnvironment& environment,
      at::Device device);

  RankGroup& group() { return *group_; }

  // Of a rank other than 0; `address` is that of its server.
  absl::Status TellAddress(const std::string& address, const std::string& description);
  // Of rank 0: the others' addresses, rank 1 first. FAILED_PRECONDITION names a rank that is not as
  // this one is described.
  absl::StatusOr<std::vector<std::string>> AwaitAddresses(const std::string& description);

 private:
  comm::Rendezvous rendezvous_;
  std::unique_ptr<comm::StoreServer> server_;  // of rank 0
  std::unique_ptr<comm::StoreClient> client_;
  std::unique_ptr<RankGroup> group_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SERVICE_REPLICA_RANKS_H_
