// Asks the ranks of one replica what they hold, for the digests of whole tensors.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_LIVE_DIGESTS_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_LIVE_DIGESTS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/trainer/publish/data_plane.h"
#include "services/trainer/publish/replica_client.h"
#include "tandem/common/v1/weights.pb.h"

namespace tandem::trainer {

using TensorDigests = std::vector<common::v1::TensorDigest>;  // one a tensor, in manifest order

// Of what is live on the replica. FAILED_PRECONDITION where that is another version; errors of its
// ranks, and of AddUpDigests().
absl::StatusOr<TensorDigests> AskWholeDigests(DataPlane& plane, ReplicaClient& replica,
                                              int64_t version, absl::Time deadline);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_LIVE_DIGESTS_H_
