#include "services/rollout/receive/receive_group.h"

#include "absl/strings/str_cat.h"
#include "common/comm/choose_group.h"
#include "common/comm/time_left.h"
#include "common/status/status_macros.h"

namespace tandem::rollout {
namespace {

comm::Rendezvous ToRendezvous(const common::v1::GroupRendezvous& rendezvous) {
  return {rendezvous.host(), rendezvous.port(), rendezvous.prefix(), rendezvous.secret()};
}

}  // namespace

void ReceiveGroup::UseRendezvous(const common::v1::GroupRendezvous& rendezvous) {
  // The group stays from one update to the next, the secret does not.
  common::v1::GroupRendezvous without_secret = rendezvous;
  without_secret.clear_secret();
  const std::string key = without_secret.SerializeAsString();
  if (key != key_) Drop();
  key_ = key;
  if (rendezvous.secret() != secret_) store_.reset();
  secret_ = rendezvous.secret();
}

absl::Status ReceiveGroup::Reach(const common::v1::GroupRendezvous& rendezvous, absl::Time reach_by,
                                 const absl::Notification* cancel) {
  UseRendezvous(rendezvous);
  if (store_ != nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(store_, comm::StoreClient::Connect(ToRendezvous(rendezvous),
                                                      comm::TimeLeft(reach_by), cancel));
  return absl::OkStatus();
}

absl::Status ReceiveGroup::AwaitStart(const IncomingUpdate& update) {
  RETURN_IF_ERROR(Reach(update.request.rendezvous(), update.join_by(), &update.cancel));
  const auto value = store_->Get(absl::StrCat("go/", update.request.update_id()),
                                 comm::TimeLeft(update.deadline), &update.cancel);
  if (!value.ok()) store_.reset();
  return value.status();
}

absl::StatusOr<comm::ProcessGroup*> ReceiveGroup::Join(
    const common::v1::GroupRendezvous& rendezvous, absl::Time join_by, absl::Time deadline,
    const absl::Notification* cancel) {
  UseRendezvous(rendezvous);
  std::shared_ptr<comm::ProcessGroup> group;
  {
    absl::MutexLock lock(&mu_);
    group = group_;
  }
  if (group == nullptr) {
    comm::GroupOptions options;
    options.name = "update";
    options.family = "update";
    options.rank = rendezvous.rank();
    options.size = rendezvous.size();
    options.rendezvous = ToRendezvous(rendezvous);
    options.timeout = comm::TimeLeft(join_by);
    options.cancel = cancel;
    ASSIGN_OR_RETURN(auto made, comm::CreateGroupOf(rendezvous.backend(), options));
    ASSIGN_OR_RETURN(group, comm::CarryTensorsOf(device_, rendezvous.backend(), std::move(made)));
    absl::MutexLock lock(&mu_);
    group_ = group;
  }
  // An abort that came before the group was there to be aborted.
  if (cancel != nullptr && cancel->HasBeenNotified())
    return absl::CancelledError("the update was dropped");
  group->SetTimeout(comm::TimeLeft(deadline));
  return group.get();
}

std::function<void(absl::string_view)> ReceiveGroup::Stopper() const {
  return [group = current()](absl::string_view reason) {
    if (group != nullptr) group->Abort(reason);
  };
}

void ReceiveGroup::Drop() {
  std::shared_ptr<comm::ProcessGroup> group;
  {
    absl::MutexLock lock(&mu_);
    group.swap(group_);
  }
  if (group != nullptr) group->Abort("the update group is left");
  store_.reset();
  key_.clear();
}

}  // namespace tandem::rollout
