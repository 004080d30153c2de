#include "services/rollout/receive/receive_by_reshard.h"

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/comm/link_facts.h"
#include "common/io/dtype.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/weights/link_times.h"
#include "common/weights/receive_table.h"
#include "services/rollout/receive/update_checks.h"

namespace tandem::rollout {
namespace {

bool IsDelta(const v1::BeginUpdateRequest& request) {
  return request.transport() == common::v1::TRANSPORT_DELTA;
}

// Checks the group in which the rank forwards.
absl::Status CheckForward(const v1::BeginUpdateRequest& request) {
  if (!request.has_forward()) {
    if (!request.relays()) return absl::OkStatus();
    return rpc::InvalidField("relays", "parts of buckets are passed on in `forward`; it is unset");
  }
  const auto& forward = request.forward();
  RETURN_IF_ERROR(CheckRendezvous(forward, "forward"));
  if (forward.prefix() == request.rendezvous().prefix()) {
    return rpc::InvalidField("forward.prefix", "expected a group of its own");
  }
  if (request.relays()) {
    if (request.forward_to() == 0) return absl::OkStatus();
    return rpc::InvalidField(
        "relays",
        "parts of buckets are passed on with transport reshard or delta, as relayed says, and not "
        "to forward_to; leave it unset");
  }
  if (request.forward_to() < 0 || request.forward_to() >= forward.size() ||
      request.forward_to() == forward.rank()) {
    return rpc::InvalidField("forward_to", absl::StrCat("expected another rank of ", forward.size(),
                                                        ", found ", request.forward_to()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReceiveByReshard::Check(const v1::BeginUpdateRequest& request) const {
  RETURN_IF_ERROR(CheckOwnGroup(request));
  const auto& own = request.rendezvous();
  if (request.has_fed_by() &&
      (request.fed_by() < 0 || request.fed_by() >= own.size() || request.fed_by() == own.rank())) {
    return rpc::InvalidField("fed_by", absl::StrCat("expected another rank of ", own.size(),
                                                    ", found ", request.fed_by()));
  }
  return CheckForward(request);
}

absl::StatusOr<weights::TransferPlan> ReceiveByReshard::CheckBuckets(
    const v1::BeginUpdateRequest& request) const {
  return weights::CheckReceiveTable(request.manifest(), request.buckets(), request.keeps_frozen());
}

absl::Status ReceiveByReshard::JoinForward(const IncomingUpdate& update,
                                           const weights::TransferPlan& plan, absl::Time join_by,
                                           weights::ReceiveLinks& links,
                                           IncomingTransfer& transfer) {
  const v1::BeginUpdateRequest& request = update.request;
  if (!request.has_forward()) {
    forward_.Drop();
    return absl::OkStatus();
  }
  transfer.link = "forward";
  transfer.joined = false;
  ASSIGN_OR_RETURN(comm::ProcessGroup* const forward,
                   forward_.Join(request.forward(), join_by, update.deadline, &update.cancel));
  transfer.link = "from";
  transfer.joined = true;
  if (!request.relays()) {
    links.forward = forward;
    links.forward_to = request.forward_to();
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const io::DType dtype, io::ParseDType(plan.manifest.tensors(0).dtype()));
  relay_.emplace(update.relayed, io::SizeOf(dtype), *forward, store_, IsDelta(request));
  links.relay = &*relay_;
  return absl::OkStatus();
}

absl::Status ReceiveByReshard::Receive(const IncomingUpdate& update,
                                       const weights::TransferPlan& plan, weights::BucketSink& sink,
                                       IncomingTransfer& transfer) {
  const v1::BeginUpdateRequest& request = update.request;
  const absl::Cleanup end_relay = [this] { relay_.reset(); };
  const absl::Time join_by = update.join_by();
  weights::ReceiveLinks links;
  transfer.link = "from";
  ASSIGN_OR_RETURN(links.from,
                   group_.Join(request.rendezvous(), join_by, update.deadline, &update.cancel));
  transfer.joined = true;
  weights::LinkTimes link_times(links.from->size());
  links.times = &link_times;
  if (request.has_fed_by()) links.fed_by = request.fed_by();
  RETURN_IF_ERROR(JoinForward(update, plan, join_by, links, transfer));
  if (buckets_ == nullptr) buckets_ = std::make_unique<weights::ReshardReceiver>(store_.ops());
  const absl::Status received =
      buckets_->Receive(plan, links, IsDelta(request), sink, transfer.times);
  const auto forward = forward_.current();
  if (forward != nullptr && !forward->status().ok()) {
    transfer.link = "forward";  // this rank ends that link only after it has answered
  } else if (links.from->status().ok()) {
    transfer.link = "own";
  }
  RETURN_IF_ERROR(received);
  transfer.links = link_times.Reports(comm::TransportOf(*links.from));
  return absl::OkStatus();
}

std::string ReceiveByReshard::Name(const v1::BeginUpdateRequest& request) const {
  return absl::StrCat("rank ", request.rendezvous().rank());
}

void ReceiveByReshard::Drop() {
  group_.Drop();
  forward_.Drop();
  buckets_.reset();
}

std::function<void(absl::string_view)> ReceiveByReshard::Stopper() {
  return [stop_from = group_.Stopper(), stop_forward = forward_.Stopper()](absl::string_view why) {
    stop_from(why);
    stop_forward(why);
  };
}

}  // namespace tandem::rollout
