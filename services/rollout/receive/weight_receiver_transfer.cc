// The receiver's worker: makes room for an update, joins its group, receives the bytes and digests
// them. weight_receiver.cc has the calls of the protocol.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/comm/link_facts.h"
#include "common/io/dtype.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/weights/broadcast_part.h"
#include "common/weights/digest.h"
#include "common/weights/relay_sender.h"
#include "common/weights/tensor_sink.h"
#include "services/rollout/receive/weight_receiver.h"

namespace tandem::rollout {

void WeightReceiver::RunUpdate(const UpdatePtr& update) {
  {
    absl::MutexLock lock(&mu_);
    if (update->state == State::kClosed) return;
  }
  absl::Status status = store_->PrepareStaging();
  std::vector<Done<v1::BeginUpdateResponse>> waiters;
  {
    absl::MutexLock lock(&mu_);
    if (update->state == State::kClosed) return;
    if (status.ok()) {
      update->ready = true;
      update->state = State::kReceiving;
      waiters.swap(update->begin_waiters);
    }
  }
  v1::BeginUpdateResponse ready;
  ready.set_ready(true);
  for (auto& waiter : waiters) waiter(ready);

  v1::VerifyUpdateResponse verified;
  if (status.ok()) status = Receive(update, verified);

  Calls calls;
  {
    absl::MutexLock lock(&mu_);
    if (update->state == State::kClosed) return;
    if (!status.ok()) {
      Close(update, status, calls);
    } else {
      update->verified = std::move(verified);
      update->state = update->verify_waiters.empty() ? State::kStaged : State::kVerified;
      for (auto& waiter : update->verify_waiters) {
        calls.push_back([waiter, response = update->verified] { waiter(response); });
      }
      update->verify_waiters.clear();
    }
  }
  Make(calls);
}

absl::Status WeightReceiver::Receive(const UpdatePtr& update, v1::VerifyUpdateResponse& verified) {
  const auto& rendezvous = update->request.rendezvous();
  const auto entered = store_->ops().Enter();  // groups are joined for this device
  weights::PhaseTimes times;
  std::vector<common::v1::LinkReport> links;
  LinkInUse link;
  absl::Status status;
  std::shared_ptr<const weights::TransferPlan> plan = update->plan;
  if (update->request.transport() == "stream") {
    ASSIGN_OR_RETURN(weights::TransferPlan canonical, stream_.Plan(plan->manifest));
    plan = std::make_shared<const weights::TransferPlan>(std::move(canonical));
  } else {
    status =
        group_.Reach(rendezvous, std::min(update->deadline, absl::Now() + update->join_timeout),
                     &update->cancel);
    if (status.ok()) {
      status = group_.WaitForKey(absl::StrCat("go/", update->request.update_id()), update->deadline,
                                 &update->cancel);
    }
  }
  std::unique_ptr<weights::TensorSink> sink;
  if (status.ok()) {
    ASSIGN_OR_RETURN(
        sink, weights::TensorSink::Create(
                  *plan, [this](int i) { return store_->Staged(i); },
                  [this](int i, int64_t offset, int64_t size) {
                    return store_->Arrived(i, offset, size);
                  },
                  [this](int i) { return store_->Live(i); }, store_->ops(), store_->packed()));
    status = ReceiveBuckets(*update, *plan, *sink, times, links, link);
    if (status.ok() && plan->keeps_frozen) {
      link.name = "own";
      status = KeepFrozen(*plan, *sink, times);
    }
  }
  if (!status.ok()) {
    // The group or its rendezvous: the cause is elsewhere, unless the sender finds no other.
    const auto code = absl::IsDeadlineExceeded(status) ? absl::StatusCode::kDeadlineExceeded
                                                       : absl::StatusCode::kAborted;
    const std::string who = update->request.transport() == "stream"
                                ? absl::StrCat("stream from ", update->request.stream_address())
                                : absl::StrCat("rank ", rendezvous.rank());
    return rpc::WithReason(
        absl::Status(code, absl::StrCat(who, ", phase transfer: ", status.message())),
        "TRANSFER_FAILED",
        {{"phase", "transfer"}, {"link", link.name}, {"joined", link.joined ? "true" : "false"}});
  }
  for (const auto& digest : sink->digests()) *verified.add_digests() = digest;
  verified.set_model_digest(weights::ModelDigest(sink->digests()));
  for (const auto& phase : times.phases()) *verified.add_phases() = phase;
  for (const auto& link : links) *verified.add_links() = link;
  return absl::OkStatus();
}

absl::Status WeightReceiver::KeepFrozen(const weights::TransferPlan& plan,
                                        weights::TensorSink& sink, weights::PhaseTimes& times) {
  const auto start = weights::PhaseTimes::Clock::now();
  for (int tensor = 0; tensor < plan.manifest.tensors_size(); ++tensor) {
    if (plan.Brings(tensor)) continue;
    RETURN_IF_ERROR(sink.TakeFromBase(tensor));
  }
  times.Worked("unpack", start);
  return absl::OkStatus();
}

absl::Status WeightReceiver::ReceiveBuckets(const Update& update, const weights::TransferPlan& plan,
                                            weights::BucketSink& sink, weights::PhaseTimes& times,
                                            std::vector<common::v1::LinkReport>& reports,
                                            LinkInUse& link) {
  const v1::BeginUpdateRequest& request = update.request;
  link.name = "from";
  if (request.transport() == "stream") {
    StreamReader::Source source;
    source.address = request.stream_address();
    source.policy_version = request.policy_version();
    source.manifest_digest = store_->manifest().digest();
    source.deadline = update.deadline;
    RETURN_IF_ERROR(stream_.Read(source, plan, sink, update.cancel, times));
    common::v1::LinkReport& report = reports.emplace_back();
    report.set_size_bytes(plan.total_bytes);
    for (const auto& phase : times.phases()) {
      if (phase.phase() == "wire") report.set_seconds(phase.busy());
    }
    report.set_transport("stream");
    return absl::OkStatus();
  }
  weights::ReceiveLinks links;
  const absl::Time join_by = std::min(update.deadline, absl::Now() + update.join_timeout);
  ASSIGN_OR_RETURN(links.from,
                   group_.Join(request.rendezvous(), join_by, update.deadline, &update.cancel));
  link.joined = true;
  weights::LinkTimes link_times(links.from->size());
  links.times = &link_times;
  if (request.transport() == "broadcast") {
    if (broadcast_ == nullptr)
      broadcast_ = std::make_unique<weights::BroadcastTransport>(store_->ops());
    RETURN_IF_ERROR(broadcast_->Receive(plan, *links.from, sink, times, links.times));
    reports = link_times.Reports(comm::TransportOf(*links.from));
    return absl::OkStatus();
  }
  if (request.has_fed_by()) links.fed_by = request.fed_by();
  const bool delta = request.transport() == "delta";
  std::optional<weights::RelaySender> relay;
  comm::ProcessGroup* forward = nullptr;
  if (request.has_forward()) {
    link = {"forward", false};
    ASSIGN_OR_RETURN(forward,
                     forward_.Join(request.forward(), join_by, update.deadline, &update.cancel));
    link = {"from", true};
    if (request.relays()) {
      weights::BaseMemory base;
      if (delta) base = [this](int i) { return store_->Live(i); };
      ASSIGN_OR_RETURN(const io::DType dtype, io::ParseDType(plan.manifest.tensors(0).dtype()));
      relay.emplace(
          *update.relayed, io::SizeOf(dtype), *forward, [this](int i) { return store_->Staged(i); },
          std::move(base), store_->ops(), store_->packed());
      links.relay = &*relay;
    } else {
      links.forward = forward;
      links.forward_to = request.forward_to();
    }
  } else {
    forward_.Drop();
  }
  if (reshard_ == nullptr) reshard_ = std::make_unique<weights::ReshardReceiver>(store_->ops());
  const absl::Status received = reshard_->Receive(plan, links, delta, sink, times);
  if (forward != nullptr && !forward->status().ok()) {
    link.name = "forward";  // this rank ends that link only after it has answered
  } else if (links.from->status().ok()) {
    link.name = "own";
  }
  RETURN_IF_ERROR(received);
  reports = link_times.Reports(comm::TransportOf(*links.from));
  return absl::OkStatus();
}

}  // namespace tandem::rollout
