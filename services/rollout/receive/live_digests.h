// Recomputes the digests of the live weights from the arena.
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_LIVE_DIGESTS_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_LIVE_DIGESTS_H_

#include "absl/status/statusor.h"
#include "services/rollout/receive/weight_store.h"
#include "tandem/rollout/v1/weight_service.pb.h"

namespace tandem::rollout {

// Call on the receiver's thread. FAILED_PRECONDITION while nothing is committed; errors of the
// store's ops.
absl::StatusOr<v1::GetDigestsResponse> DigestLive(const WeightStore& store);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_LIVE_DIGESTS_H_
