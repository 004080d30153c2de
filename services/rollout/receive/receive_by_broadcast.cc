#include "services/rollout/receive/receive_by_broadcast.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/comm/link_facts.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/weights/broadcast_part.h"
#include "common/weights/link_times.h"
#include "services/rollout/receive/update_checks.h"

namespace tandem::rollout {

absl::Status ReceiveByBroadcast::Check(const v1::BeginUpdateRequest& request) const {
  RETURN_IF_ERROR(CheckOwnGroup(request));
  const auto unexpected = [](const char* field) {
    return rpc::InvalidField(field,
                             "transport 'broadcast' forwards in the group that it receives in, "
                             "unchanged; leave it unset");
  };
  if (request.relays()) return unexpected("relays");
  if (request.has_forward()) return unexpected("forward");
  const auto& own = request.rendezvous();
  const auto check = [&](const char* field, int rank) {
    if (rank >= 1 && rank < own.size() && rank != own.rank()) return absl::OkStatus();
    return rpc::InvalidField(
        field, absl::StrCat("expected another rank of ", own.size(), ", not 0, found ", rank));
  };
  if (request.has_fed_by()) {
    RETURN_IF_ERROR(check("fed_by", request.fed_by()));
  }
  if (request.forward_to() == 0) return absl::OkStatus();
  return check("forward_to", request.forward_to());
}

absl::StatusOr<weights::TransferPlan> ReceiveByBroadcast::CheckBuckets(
    const v1::BeginUpdateRequest& request) const {
  const auto& tensors = request.manifest().tensors();
  const bool is_part = weights::HasParts(request.buckets()) ||
                       std::any_of(tensors.begin(), tensors.end(),
                                   [](const auto& tensor) { return tensor.has_box(); });
  const auto check = is_part ? weights::CheckBroadcastPart : weights::CheckTransferPlan;
  return check(request.manifest(), request.buckets(), request.keeps_frozen());
}

absl::Status ReceiveByBroadcast::Receive(const IncomingUpdate& update,
                                         const weights::TransferPlan& plan,
                                         weights::BucketSink& sink, IncomingTransfer& transfer) {
  transfer.link = "from";
  ASSIGN_OR_RETURN(
      comm::ProcessGroup* const from,
      group_.Join(update.request.rendezvous(), update.join_by(), update.deadline, &update.cancel));
  transfer.joined = true;
  if (buckets_ == nullptr) buckets_ = std::make_unique<weights::BroadcastTransport>(store_.ops());
  weights::LinkTimes links(from->size());
  const weights::BroadcastChain chain = {update.request.fed_by(), update.request.forward_to()};
  RETURN_IF_ERROR(buckets_->Receive(plan, *from, sink, transfer.times, &links, chain));
  transfer.links = links.Reports(comm::TransportOf(*from));
  return absl::OkStatus();
}

std::string ReceiveByBroadcast::Name(const v1::BeginUpdateRequest& request) const {
  return absl::StrCat("rank ", request.rendezvous().rank());
}

void ReceiveByBroadcast::Drop() {
  group_.Drop();
  buckets_.reset();
}

}  // namespace tandem::rollout
