// ReshardPlane: every trainer rank sends what it holds of each tensor to the ranks of the first
// replica, which pass it on to the next (fleet_tables.h). No rank sees more than its own part.
//
//   leader:  ReshardPlane plane(...); WeightPublisher drives it
//   others:  RETURN_IF_ERROR(follower.Follow());            // reshard_follower.h, until End()
//
// The leader gives orders over the trainer's own group and gets a report for each; an attempt that
// it calls off is ended on the other ranks by the key abort/<update_id> in the rendezvous store.
// What is waited for in that group ends with the update's deadline, and some, as well.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_RESHARD_PLANE_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_RESHARD_PLANE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/trainer/publish/data_plane.h"
#include "services/trainer/publish/fleet_tables.h"
#include "services/trainer/publish/group_deadline.h"
#include "services/trainer/publish/group_messages.h"
#include "services/trainer/publish/reshard_feeds.h"
#include "tandem/trainer/v1/publish_order.pb.h"

namespace tandem::trainer {

class ReshardPlane : public DataPlane {
 public:
  // Feeds and group outlive it. `world`: all ranks that send, the leader is rank 0; null where it
  // is alone; `world_timeout` is what it has between updates. `group_secret`: what the ranks of the
  // trainer know, under which an update's secret travels to them; empty where they have none, and
  // the secret travels as the world's links do.
  ReshardPlane(ReshardFeeds* feeds, comm::ProcessGroup* world, absl::Duration world_timeout,
               std::string group_secret = "");

  std::string transport() const override { return feeds_.deltas() ? "delta" : "reshard"; }
  int num_senders() const override { return feeds_.num_senders(); }
  bool chained() const override { return true; }
  bool sends_deltas() const override { return feeds_.deltas(); }
  absl::Status CheckReplica(int num_ranks) override;
  absl::StatusOr<std::vector<ReplicaTables>> TablesFor(
      const std::vector<int>& replica_ranks) override;
  int64_t model_bytes() const override { return model_bytes_; }
  void Begin(absl::Time deadline) override { limit_.Begin(deadline); }
  absl::Status Order(const SendOrder& order) override;
  absl::StatusOr<SendResult> Send(comm::ProcessGroup& group, const SendOrder& order,
                                  weights::PhaseTimes& times) override;
  absl::Status Drain() override;
  absl::Status End() override;

 private:
  absl::Status TellAll(const v1::PublishOrder& order);
  // What a rank sends to a replica of so many ranks, for an error.
  std::string LastMessage(int rank, int replica_ranks);
  // What a rank answers. Its failure, with its number, comes as an error: DATA_LOSS also where the
  // answer arrived damaged. Errors of the group are in world_->status() as well.
  absl::Status ReceiveReport(int rank, absl::string_view tag, v1::SendReport& report);

  ReshardFeeds& feeds_;
  absl::Mutex mu_;  // of what may make a feed
  FleetTables tables_ ABSL_GUARDED_BY(mu_);
  comm::ProcessGroup* const world_;
  const std::string group_secret_;
  std::vector<MessageLink> links_;  // to ranks 1 and on
  int64_t model_bytes_ = 0;
  std::vector<bool> ordered_;  // by rank: whether its report is to come
  GroupDeadline limit_;        // of the world
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_RESHARD_PLANE_H_
