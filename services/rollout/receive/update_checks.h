// Stateless checks of a trainer's update requests. Those of one transport are its own:
// ReceiveTransport::Check().
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_UPDATE_CHECKS_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_UPDATE_CHECKS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/rollout/receive/receive_transport.h"
#include "services/rollout/receive/weight_store.h"
#include "tandem/rollout/v1/weight_service.pb.h"

namespace tandem::rollout {

inline constexpr absl::Duration kMaxUpdateTimeout = absl::Hours(24);

// INVALID_ARGUMENT names the field that is out of range, with the checks of the request's
// transport; null: this rank knows no such transport. FAILED_PRECONDITION (INSTRUCTION_SETS_DIFFER)
// if exact numerics need the trainer's kind of processor.
absl::Status CheckBeginRequest(const rollout::v1::BeginUpdateRequest& request,
                               const ReceiveTransport* transport);

// Checks that several transports share; each returns INVALID_ARGUMENT with the field.
// The rank receives in a group, in which it is not the leader.
absl::Status CheckOwnGroup(const rollout::v1::BeginUpdateRequest& request);
// The rendezvous in `field` has a known backend, an address, and a rank within its size.
absl::Status CheckRendezvous(const common::v1::GroupRendezvous& rendezvous,
                             const std::string& field);

// Returns the request's timeout: more than 0, at most kMaxUpdateTimeout; else INVALID_ARGUMENT.
absl::StatusOr<absl::Duration> UpdateTimeout(const rollout::v1::BeginUpdateRequest& request);

// Returns the request's join_timeout; infinite if unset.
absl::StatusOr<absl::Duration> JoinTimeout(const rollout::v1::BeginUpdateRequest& request);

// FAILED_PRECONDITION (BASE_MISMATCH) if the base, of a delta or of frozen tensors that are kept, is
// not the live version.
absl::Status CheckBase(const v1::BeginUpdateRequest& request, const WeightStore& store);

// True if two requests open the same update, ignoring fields that may differ in a retry.
bool SameUpdate(rollout::v1::BeginUpdateRequest a, rollout::v1::BeginUpdateRequest b);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_UPDATE_CHECKS_H_
