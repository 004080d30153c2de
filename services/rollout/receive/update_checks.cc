#include "services/rollout/receive/update_checks.h"

#include "absl/strings/str_cat.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/weights/transport.h"

namespace tandem::rollout {

using rollout::v1::BeginUpdateRequest;

absl::StatusOr<absl::Duration> UpdateTimeout(const BeginUpdateRequest& request) {
  const auto& timeout = request.timeout();
  const absl::Duration duration =
      absl::Seconds(timeout.seconds()) + absl::Nanoseconds(timeout.nanos());
  if (duration <= absl::ZeroDuration() || duration > kMaxUpdateTimeout) {
    return rpc::InvalidField("timeout", absl::StrCat("expected more than 0 and at most ",
                                                     absl::FormatDuration(kMaxUpdateTimeout),
                                                     ", found ", absl::FormatDuration(duration)));
  }
  return duration;
}

absl::Status CheckBeginRequest(const BeginUpdateRequest& request) {
  if (request.update_id().empty() || request.update_id().size() > 128) {
    return rpc::InvalidField("update_id", "expected a UUID");
  }
  if (request.policy_version() < 0) {
    return rpc::InvalidField("policy_version",
                             absl::StrCat("expected >= 0, found ", request.policy_version()));
  }
  if (request.has_base_version()) {
    return rpc::InvalidField("base_version", absl::StrCat("transport '", request.transport(),
                                                          "' applies to no base; leave it unset"));
  }
  if (const auto transport = weights::MakeTransport(request.transport()); !transport.ok()) {
    return rpc::InvalidField("transport", transport.status().message());
  }
  const auto& rendezvous = request.rendezvous();
  if (const std::string& backend = rendezvous.backend();
      backend != "gloo" && backend != "nccl" && backend != "shared_memory") {
    return rpc::InvalidField(
        "rendezvous.backend",
        absl::StrCat("expected gloo, nccl or shared_memory, found '", backend, "'"));
  }
  if (rendezvous.host().empty())
    return rpc::InvalidField("rendezvous.host", "expected a host, found nothing");
  if (rendezvous.port() <= 0 || rendezvous.port() > 65535) {
    return rpc::InvalidField("rendezvous.port",
                             absl::StrCat("expected 1 to 65535, found ", rendezvous.port()));
  }
  if (rendezvous.size() < 2 || rendezvous.rank() < 1 || rendezvous.rank() >= rendezvous.size()) {
    return rpc::InvalidField("rendezvous.rank",
                             absl::StrCat("expected 1 to ", rendezvous.size() - 1, ", found ",
                                          rendezvous.rank(), " (0 sends)"));
  }
  return UpdateTimeout(request).status();
}

bool SameUpdate(BeginUpdateRequest a, BeginUpdateRequest b) {
  for (BeginUpdateRequest* request : {&a, &b}) {
    request->clear_request_id();
    request->clear_timeout();
    request->clear_manifest();  // its digest is compared
    request->clear_buckets();
  }
  return a.SerializeAsString() == b.SerializeAsString();
}

}  // namespace tandem::rollout
