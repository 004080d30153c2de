// Checks of what a trainer says about an update, without state.
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_UPDATE_CHECKS_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_UPDATE_CHECKS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/rollout/receive/weight_store.h"
#include "tandem/rollout/v1/weight_service.pb.h"

namespace tandem::rollout {

inline constexpr absl::Duration kMaxUpdateTimeout = absl::Hours(24);

// INVALID_ARGUMENT names the field that is out of range.
absl::Status CheckBeginRequest(const rollout::v1::BeginUpdateRequest& request);

// The request's timeout, within 0 and kMaxUpdateTimeout.
absl::StatusOr<absl::Duration> UpdateTimeout(const rollout::v1::BeginUpdateRequest& request);

// The request's join_timeout; infinite where it has none.
absl::StatusOr<absl::Duration> JoinTimeout(const rollout::v1::BeginUpdateRequest& request);

// FAILED_PRECONDITION (BASE_MISMATCH) where a delta's base is not what is live.
absl::Status CheckBase(const v1::BeginUpdateRequest& request, const WeightStore& store);

// Whether two requests open the same update: all but what a repeat says anew.
bool SameUpdate(rollout::v1::BeginUpdateRequest a, rollout::v1::BeginUpdateRequest b);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_UPDATE_CHECKS_H_
