#include "services/rollout/receive/receive_by_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/host_port.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/weights/receive_table.h"
#include "services/rollout/receive/update_checks.h"

namespace tandem::rollout {

absl::Status ReceiveByStream::Check(const v1::BeginUpdateRequest& request) const {
  if (const auto parsed = net::ParseHostPort(request.stream_address()); !parsed.ok()) {
    return rpc::InvalidField("stream_address", std::string(parsed.status().message()));
  }
  if (request.has_rendezvous() || request.has_forward() || request.has_fed_by()) {
    return rpc::InvalidField("rendezvous", "transport 'stream' joins no group; leave it unset");
  }
  return absl::OkStatus();
}

absl::StatusOr<weights::TransferPlan> ReceiveByStream::CheckBuckets(
    const v1::BeginUpdateRequest& request) const {
  return weights::CheckReceiveTable(request.manifest(), request.buckets(), request.keeps_frozen());
}

absl::StatusOr<std::shared_ptr<const weights::TransferPlan>> ReceiveByStream::PlanFor(
    std::shared_ptr<const weights::TransferPlan> plan) const {
  ASSIGN_OR_RETURN(weights::TransferPlan canonical,
                   reader_.Plan(plan->manifest, plan->keeps_frozen));
  return std::make_shared<const weights::TransferPlan>(std::move(canonical));
}

absl::Status ReceiveByStream::Receive(const IncomingUpdate& update,
                                      const weights::TransferPlan& plan, weights::BucketSink& sink,
                                      IncomingTransfer& transfer) {
  transfer.link = "from";
  StreamReader::Source source;
  source.address = update.request.stream_address();
  source.policy_version = update.request.policy_version();
  source.manifest_digest = store_.manifest().digest();
  source.deadline = update.deadline;
  RETURN_IF_ERROR(reader_.Read(source, plan, sink, update.cancel, transfer.times));
  common::v1::LinkReport& report = transfer.links.emplace_back();
  report.set_size_bytes(plan.BroughtBytes());
  for (const auto& phase : transfer.times.phases()) {
    if (phase.phase() == "wire") report.set_seconds(phase.busy());
  }
  report.set_transport("stream");
  return absl::OkStatus();
}

std::string ReceiveByStream::Name(const v1::BeginUpdateRequest& request) const {
  return absl::StrCat("stream from ", request.stream_address());
}

}  // namespace tandem::rollout
