#include "services/rollout/receive/receive_group.h"

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

absl::Status ReceiveGroup::WaitForKey(const std::string& key, absl::Time deadline,
                                      const absl::Notification* cancel) {
  const auto value = store_->Get(key, comm::TimeLeft(deadline), cancel);
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
    options.rank = rendezvous.rank();
    options.size = rendezvous.size();
    options.rendezvous = ToRendezvous(rendezvous);
    options.timeout = comm::TimeLeft(join_by);
    options.cancel = cancel;
    ASSIGN_OR_RETURN(group, comm::CreateGroupOf(rendezvous.backend(), options));
    absl::MutexLock lock(&mu_);
    group_ = group;
  }
  // An abort that came before the group was there to be aborted.
  if (cancel != nullptr && cancel->HasBeenNotified())
    return absl::CancelledError("the update was dropped");
  group->SetTimeout(comm::TimeLeft(deadline));
  return group.get();
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
