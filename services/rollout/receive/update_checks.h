// Stateless checks of a trainer's update requests.
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_UPDATE_CHECKS_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_UPDATE_CHECKS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/rollout/receive/weight_store.h"
#include "tandem/rollout/v1/weight_service.pb.h"

namespace tandem::rollout {

inline constexpr absl::Duration kMaxUpdateTimeout = absl::Hours(24);

// INVALID_ARGUMENT names the field that is out of range. FAILED_PRECONDITION
// (INSTRUCTION_SETS_DIFFER) if exact numerics need the trainer's kind of processor.
absl::Status CheckBeginRequest(const rollout::v1::BeginUpdateRequest& request);

// Returns the request's timeout: more than 0, at most kMaxUpdateTimeout; else INVALID_ARGUMENT.
absl::StatusOr<absl::Duration> UpdateTimeout(const rollout::v1::BeginUpdateRequest& request);

// Returns the request's join_timeout; infinite if unset.
absl::StatusOr<absl::Duration> JoinTimeout(const rollout::v1::BeginUpdateRequest& request);

// FAILED_PRECONDITION (BASE_MISMATCH) if the base of a delta, or of the frozen tensors that are
// kept, is not the live version.
absl::Status CheckBase(const v1::BeginUpdateRequest& request, const WeightStore& store);

// True if two requests open the same update, ignoring fields that may differ in a retry.
bool SameUpdate(rollout::v1::BeginUpdateRequest a, rollout::v1::BeginUpdateRequest b);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_UPDATE_CHECKS_H_
