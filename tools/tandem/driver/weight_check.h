// Whether rollouts hold the weights that the trainer has: the digests of their live tensors, rank
// by rank, beside the trainer's.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_WEIGHT_CHECK_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_WEIGHT_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/weights/replica_digests.h"
#include "tandem/trainer/v1/trainer_service.pb.h"

namespace tandem::driver {

// How one replica compares.
struct ReplicaCheck {
  std::string replica_id;
  // Why nothing could be compared, naming the rank: it does not answer, has committed nothing, or
  // has other tensors.
  absl::Status status;
  // What its ranks serve: where they are not all at the trainer's version, the first other one. -1
  // where the status is not OK.
  int64_t policy_version = -1;
  // Of the trainer that rank 0's version came from; 0: none.
  int64_t incarnation = 0;
  int version_rank = 0;  // the rank that is at that version
  // Of tensors, where all ranks are at the trainer's version.
  std::vector<weights::DigestDifference> differences;

  bool Agrees(int64_t trainer_version) const {
    return status.ok() && policy_version == trainer_version && differences.empty();
  }
};

// Asks all ranks of all replicas at once; each computes its digests anew, within `timeout`. Answers
// in the order of `replicas`.
std::vector<ReplicaCheck> CheckReplicas(const trainer::v1::GetWeightDigestsResponse& trainer,
                                        const std::vector<trainer::v1::RolloutReplica>& replicas,
                                        absl::Duration timeout);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_WEIGHT_CHECK_H_
