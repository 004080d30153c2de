// Checks that rollouts hold the trainer's weights: compares the digests of their live tensors, rank
// by rank, with the trainer's.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_WEIGHT_CHECK_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_WEIGHT_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/weights/compare_digests.h"
#include "tandem/trainer/v1/trainer_service.pb.h"

namespace tandem::driver {

// The result for one replica.
struct ReplicaCheck {
  std::string replica_id;
  // Why the comparison failed, with the rank: it does not answer, has committed nothing, or has
  // other tensors.
  absl::Status status;
  // The version that its ranks serve; if not all serve the trainer's, the first other one. -1 if
  // the status is not OK.
  int64_t policy_version = -1;
  // Incarnation of the trainer that rank 0's version came from; 0: none.
  int64_t incarnation = 0;
  int version_rank = 0;  // the rank that serves policy_version
  // Tensors that differ; filled if all ranks serve the trainer's version.
  std::vector<weights::DigestDifference> differences;

  bool Agrees(int64_t trainer_version) const {
    return status.ok() && policy_version == trainer_version && differences.empty();
  }
};

// Asks all ranks of all replicas in parallel; each computes its digests within `timeout`. Returns
// the results in the order of `replicas`.
std::vector<ReplicaCheck> CheckReplicas(const trainer::v1::GetWeightDigestsResponse& trainer,
                                        const std::vector<trainer::v1::RolloutReplica>& replicas,
                                        absl::Duration timeout);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_WEIGHT_CHECK_H_
