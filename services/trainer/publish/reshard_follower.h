// ReshardFollower: the other trainer ranks' part in a publish that the leader runs.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_RESHARD_FOLLOWER_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_RESHARD_FOLLOWER_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/comm/process_group.h"
#include "services/trainer/publish/group_messages.h"
#include "services/trainer/publish/reshard_feeds.h"
#include "tandem/trainer/v1/publish_order.pb.h"

namespace tandem::trainer {

// Keeps its place in the update's group between updates. Threads: the rank's collective thread; an
// internal thread watches for cancelled attempts.
class ReshardFollower {
 public:
  // Feeds and world outlive it. `world`: the group in which rank 0 gives orders. `group_secret`:
  // the same as the leader's (send_by_reshard.h).
  ReshardFollower(ReshardFeeds* feeds, comm::ProcessGroup* world, std::string group_secret = "")
      : feeds_(feeds), world_(world), group_secret_(std::move(group_secret)), leader_(world, 0) {}

  // Executes the leader's orders until it ends. Returns only errors of `world`, which is then
  // broken; reports errors of an update to the leader.
  absl::Status Follow();

 private:
  // Decrypts the secret that came with the order.
  absl::Status OpenSecret(v1::PublishOrder& order) const;
  v1::SendReport Carry(const v1::PublishOrder& order);
  absl::Status Send(const v1::PublishOrder& order, v1::SendReport& report);
  absl::StatusOr<std::shared_ptr<comm::ProcessGroup>> Join(const v1::PublishOrder& order,
                                                           absl::Time deadline,
                                                           const absl::Notification* cancel);

  ReshardFeeds* const feeds_;
  comm::ProcessGroup* const world_;
  const std::string group_secret_;
  MessageLink leader_;
  std::string prefix_;  // of the group's rendezvous
  std::shared_ptr<comm::ProcessGroup> group_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_RESHARD_FOLLOWER_H_
