#include "services/trainer/publish/reshard_follower.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/comm/choose_group.h"
#include "common/comm/time_left.h"
#include "common/security/sealed.h"
#include "common/status/status_macros.h"
#include "services/trainer/publish/digest_lanes.h"

namespace tandem::trainer {
namespace {

v1::SendReport ReportOf(const absl::Status& status) {
  v1::SendReport report;
  report.set_code(static_cast<int>(status.code()));
  report.set_message(std::string(status.message()));
  return report;
}

// Watches, on its own thread, for the key that cancels an attempt, and then aborts the attempt's
// waits.
class CallOffWatch {
 public:
  CallOffWatch(std::unique_ptr<comm::StoreClient> store, std::string key, absl::Time deadline)
      : store_(std::move(store)), thread_([this, key = std::move(key), deadline] {
          if (!store_->Get(key, comm::TimeLeft(deadline)).ok()) return;
          absl::MutexLock lock(&mu_);
          cancel_.Notify();
          if (group_ != nullptr) group_->Abort("the leader cancelled the update");
        }) {}

  ~CallOffWatch() {
    store_->StopWaiting();
    thread_.join();
  }

  const absl::Notification* cancel() const { return &cancel_; }

  void Watch(std::shared_ptr<comm::ProcessGroup> group) {
    absl::MutexLock lock(&mu_);
    group_ = std::move(group);
    if (cancel_.HasBeenNotified()) group_->Abort("the leader cancelled the update");
  }

 private:
  const std::unique_ptr<comm::StoreClient> store_;
  absl::Notification cancel_;
  absl::Mutex mu_;
  std::shared_ptr<comm::ProcessGroup> group_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // last: it uses the above
};

}  // namespace

absl::Status ReshardFollower::Follow() {
  while (true) {
    v1::PublishOrder order;
    absl::Status received = leader_.Receive(order, "publish order");
    if (!received.ok() && !absl::IsDataLoss(received)) return received;
    // The end has no bytes that could arrive damaged.
    if (received.ok() && order.update_id().empty()) return absl::OkStatus();
    if (received.ok()) received = OpenSecret(order);
    // Reports an impossible plan before anyone waits for this rank in the update's group.
    if (received.ok()) {
      received = feeds_->To({order.replica_ranks(), order.keeps_frozen()}).status();
    }
    RETURN_IF_ERROR(leader_.Send(ReportOf(received), "publish order"));
    if (received.ok()) {
      RETURN_IF_ERROR(leader_.Send(Carry(order), "publish report"));
    }
  }
}

absl::Status ReshardFollower::OpenSecret(v1::PublishOrder& order) const {
  if (order.sealed_secret().empty() == group_secret_.empty()) {
    if (group_secret_.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(std::string secret,
                     security::Unseal(group_secret_, order.sealed_secret(), order.update_id()));
    order.mutable_rendezvous()->set_secret(std::move(secret));
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "the update's secret came ",
      group_secret_.empty() ? "sealed, and this rank has no" : "in plaintext, and this rank has a",
      " TANDEM_GROUP_SECRET; give all ranks the same"));
}

v1::SendReport ReshardFollower::Carry(const v1::PublishOrder& order) {
  v1::SendReport report;
  const absl::Status status = Send(order, report);
  if (!status.ok()) {
    if (group_ != nullptr) group_->Abort("the update failed");
    group_.reset();
    return ReportOf(status);
  }
  return report;
}

absl::StatusOr<std::shared_ptr<comm::ProcessGroup>> ReshardFollower::Join(
    const v1::PublishOrder& order, absl::Time deadline, const absl::Notification* cancel) {
  const auto& rendezvous = order.rendezvous();
  if (group_ != nullptr && prefix_ == rendezvous.prefix()) return group_;
  if (group_ != nullptr) group_->Abort("the update group is left");
  group_.reset();
  comm::GroupOptions options;
  options.name = "update";
  options.family = "update";
  options.rank = world_->rank();
  options.size = rendezvous.size();
  options.rendezvous = {rendezvous.host(), rendezvous.port(), rendezvous.prefix(),
                        rendezvous.secret()};
  options.timeout = comm::TimeLeft(deadline);
  options.cancel = cancel;
  ASSIGN_OR_RETURN(auto made, comm::CreateGroupOf(rendezvous.backend(), options));
  ASSIGN_OR_RETURN(group_,
                   comm::CarryTensorsOf(feeds_->device(), rendezvous.backend(), std::move(made)));
  prefix_ = rendezvous.prefix();
  return group_;
}

absl::Status ReshardFollower::Send(const v1::PublishOrder& order, v1::SendReport& report) {
  const absl::Time deadline = absl::Now() + absl::Milliseconds(order.timeout_ms());
  const auto& rendezvous = order.rendezvous();
  ASSIGN_OR_RETURN(auto store,
                   comm::StoreClient::Connect({rendezvous.host(), rendezvous.port(),
                                               rendezvous.prefix(), rendezvous.secret()},
                                              comm::TimeLeft(deadline)));
  CallOffWatch watch(std::move(store), absl::StrCat("abort/", order.update_id()), deadline);
  ASSIGN_OR_RETURN(const auto group, Join(order, deadline, watch.cancel()));
  watch.Watch(group);
  group->SetTimeout(comm::TimeLeft(deadline));
  weights::PhaseTimes times;
  ASSIGN_OR_RETURN(ReshardSender* const sender,
                   feeds_->SenderTo({order.replica_ranks(), order.keeps_frozen()}));
  ASSIGN_OR_RETURN(const ReshardSender::Sent sent,
                   sender->Send(*group, feeds_->num_senders(), order.delta(), times));
  AppendLanes(sent.digests, *report.mutable_digest_lanes());
  report.set_sent_bytes(sent.bytes);
  report.set_elements(sent.elements);
  report.set_changed_elements(sent.changed);
  for (const auto& phase : times.phases()) *report.add_phases() = phase;
  return absl::OkStatus();
}

}  // namespace tandem::trainer
