// The receiver's worker: makes room for an update and has its transport fill it. weight_receiver.cc
// has the calls of the protocol.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/weights/tensor_digests.h"
#include "common/weights/tensor_sink.h"
#include "services/rollout/receive/weight_receiver.h"

namespace tandem::rollout {
namespace {

// Copies the frozen tensors, which no bucket brings, from the live weights.
absl::Status KeepFrozen(const weights::TransferPlan& plan, weights::TensorSink& sink,
                        weights::PhaseTimes& times) {
  const auto start = weights::PhaseTimes::Clock::now();
  for (int tensor = 0; tensor < plan.manifest.tensors_size(); ++tensor) {
    if (plan.Brings(tensor)) continue;
    RETURN_IF_ERROR(sink.TakeFromBase(tensor));
  }
  times.Worked("unpack", start);
  return absl::OkStatus();
}

}  // namespace

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
  if (status.ok()) status = Receive(*update, verified);

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

absl::Status WeightReceiver::Receive(Update& update, v1::VerifyUpdateResponse& verified) {
  ReceiveTransport& transport = *update.transport;
  const auto entered = store_->ops().Enter();  // groups are joined for this device
  ASSIGN_OR_RETURN(const auto plan, transport.PlanFor(update.plan));
  const IncomingUpdate incoming{update.request, *update.relayed, update.deadline,
                                update.join_timeout, update.cancel};
  IncomingTransfer transfer;
  std::unique_ptr<weights::TensorSink> sink;
  absl::Status status = transport.AwaitStart(incoming);
  if (status.ok()) {
    ASSIGN_OR_RETURN(sink, weights::TensorSink::Create(*plan, *store_));
    status = transport.Receive(incoming, *plan, *sink, transfer);
    if (status.ok() && plan->keeps_frozen) {
      transfer.link = "own";
      status = KeepFrozen(*plan, *sink, transfer.times);
    }
  }
  if (!status.ok()) {
    // The group or its rendezvous: the cause is elsewhere, unless the sender finds no other.
    const auto code = absl::IsDeadlineExceeded(status) ? absl::StatusCode::kDeadlineExceeded
                                                       : absl::StatusCode::kAborted;
    return rpc::WithReason(absl::Status(code, absl::StrCat(transport.Name(update.request),
                                                           ", phase transfer: ", status.message())),
                           "TRANSFER_FAILED",
                           {{"phase", "transfer"},
                            {"link", transfer.link},
                            {"joined", transfer.joined ? "true" : "false"}});
  }
  for (const auto& digest : sink->digests()) *verified.add_digests() = digest;
  verified.set_model_digest(weights::ModelDigest(sink->digests()));
  for (const auto& phase : transfer.times.phases()) *verified.add_phases() = phase;
  for (const auto& link : transfer.links) *verified.add_links() = link;
  return absl::OkStatus();
}

}  // namespace tandem::rollout
