#include "services/rollout/receive/update_checks.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/comm/choose_group.h"
#include "common/model/processor.h"
#include "common/rpc/policy_version.h"
#include "common/rpc/proto_duration.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/weights/transport_name.h"

namespace tandem::rollout {

using rollout::v1::BeginUpdateRequest;

absl::StatusOr<absl::Duration> UpdateTimeout(const BeginUpdateRequest& request) {
  const absl::Duration duration = rpc::FromProto(request.timeout());
  if (duration <= absl::ZeroDuration() || duration > kMaxUpdateTimeout) {
    return rpc::InvalidField("timeout", absl::StrCat("expected more than 0 and at most ",
                                                     absl::FormatDuration(kMaxUpdateTimeout),
                                                     ", found ", absl::FormatDuration(duration)));
  }
  return duration;
}

absl::StatusOr<absl::Duration> JoinTimeout(const BeginUpdateRequest& request) {
  if (!request.has_join_timeout()) return absl::InfiniteDuration();
  const absl::Duration duration = rpc::FromProto(request.join_timeout());
  if (duration <= absl::ZeroDuration()) {
    return rpc::InvalidField("join_timeout", absl::StrCat("expected more than 0, found ",
                                                          absl::FormatDuration(duration)));
  }
  return duration;
}

absl::Status CheckRendezvous(const common::v1::GroupRendezvous& rendezvous,
                             const std::string& field) {
  if (const absl::Status known = comm::CheckBackend(rendezvous.backend()); !known.ok()) {
    return rpc::InvalidField(field + ".backend", std::string(known.message()));
  }
  if (rendezvous.host().empty())
    return rpc::InvalidField(field + ".host", "expected a host, found nothing");
  if (rendezvous.port() <= 0 || rendezvous.port() > 65535) {
    return rpc::InvalidField(field + ".port",
                             absl::StrCat("expected 1 to 65535, found ", rendezvous.port()));
  }
  if (rendezvous.size() < 2 || rendezvous.rank() < 0 || rendezvous.rank() >= rendezvous.size()) {
    return rpc::InvalidField(field + ".rank", absl::StrCat("expected a rank of ", rendezvous.size(),
                                                           ", found ", rendezvous.rank()));
  }
  return absl::OkStatus();
}

namespace {

absl::Status CheckInstructionSets(const std::string& trainers) {
  const std::string own = model::CurrentProcessor();
  if (trainers.empty() || trainers == own) return absl::OkStatus();
  return rpc::WithReason(
      absl::FailedPreconditionError(absl::StrCat(
          "numerics: exact needs one kind of processor on both sides; the trainer computes with ",
          trainers, ", this rollout with ", own,
          "; start both on one kind, or set numerics to fast")),
      "INSTRUCTION_SETS_DIFFER", {{"expected", trainers}, {"actual", own}});
}

// A base is stated if and only if the update uses one.
absl::Status CheckBaseVersion(const BeginUpdateRequest& request) {
  const bool uses_base =
      request.transport() == common::v1::TRANSPORT_DELTA || request.keeps_frozen();
  if (request.has_base_version() == uses_base) return absl::OkStatus();
  if (uses_base) {
    return rpc::InvalidField("base_version",
                             "transport 'delta' and keeps_frozen need a base; state its version");
  }
  return rpc::InvalidField("base_version",
                           absl::StrCat("transport '", weights::TransportName(request.transport()),
                                        "' applies to no base; leave it unset"));
}

}  // namespace

absl::Status CheckOwnGroup(const BeginUpdateRequest& request) {
  RETURN_IF_ERROR(JoinTimeout(request).status());
  RETURN_IF_ERROR(CheckRendezvous(request.rendezvous(), "rendezvous"));
  const auto& own = request.rendezvous();
  if (own.rank() >= 1) return absl::OkStatus();
  return rpc::InvalidField("rendezvous.rank", absl::StrCat("expected 1 to ", own.size() - 1,
                                                           ", found ", own.rank(), " (0 sends)"));
}

absl::Status CheckBeginRequest(const BeginUpdateRequest& request,
                               const ReceiveTransport* transport) {
  if (request.update_id().empty() || request.update_id().size() > 128) {
    return rpc::InvalidField("update_id", "expected a UUID");
  }
  RETURN_IF_ERROR(rpc::CheckPolicyVersion("policy_version", request.policy_version()));
  RETURN_IF_ERROR(rpc::CheckIncarnation("incarnation", request.incarnation()));
  if (request.has_base_version()) {
    RETURN_IF_ERROR(rpc::CheckPolicyVersion("base_version", request.base_version()));
  }
  RETURN_IF_ERROR(CheckInstructionSets(request.instruction_sets()));
  if (transport == nullptr) {
    return rpc::InvalidField("transport",
                             absl::StrCat("expected broadcast, reshard, delta or stream, found '",
                                          weights::TransportName(request.transport()), "'"));
  }
  RETURN_IF_ERROR(CheckBaseVersion(request));
  RETURN_IF_ERROR(transport->Check(request));
  return UpdateTimeout(request).status();
}

absl::Status CheckBase(const BeginUpdateRequest& request, const WeightStore& store) {
  if (!request.has_base_version()) return absl::OkStatus();
  const int64_t live = store.live_version();
  if (live == request.base_version() && store.live_model_digest() == request.base_model_digest()) {
    return absl::OkStatus();
  }
  return rpc::WithReason(
      absl::FailedPreconditionError(
          absl::StrCat("base: version ", request.base_version(), " with digest ",
                       request.base_model_digest(), " is expected, version ", live, " with digest ",
                       store.live_model_digest(), " is live; send all of it")),
      "BASE_MISMATCH",
      {{"expected", absl::StrCat(request.base_version())}, {"actual", absl::StrCat(live)}});
}

bool SameUpdate(BeginUpdateRequest a, BeginUpdateRequest b) {
  for (BeginUpdateRequest* request : {&a, &b}) {
    request->clear_request_id();
    request->clear_message_digest();
    request->clear_timeout();
    request->clear_join_timeout();
    request->clear_manifest();  // its digest is compared
    request->clear_buckets();
    request->clear_relayed();
  }
  return a.SerializeAsString() == b.SerializeAsString();
}

}  // namespace tandem::rollout
