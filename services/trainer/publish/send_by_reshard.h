// SendByReshard: every trainer rank sends its parts of each tensor to the ranks of the first
// replica, which forward them to the next (fleet_tables.h). No rank sees more than its own part.
//
//   SendByReshard transport(&feeds, &world, timeout);   // the leader; WeightPublisher calls it
//   RETURN_IF_ERROR(follower.Follow());                // the others, until End(): reshard_follower.h
//
// The leader gives orders over the trainer's own group and gets a report for each. To cancel an
// attempt on the other ranks, it sets the key abort/<update_id> in the rendezvous store. Waits in
// the trainer's group end at the update's deadline plus kReportGrace.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_SEND_BY_RESHARD_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_SEND_BY_RESHARD_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/trainer/publish/fleet_tables.h"
#include "services/trainer/publish/group_deadline.h"
#include "services/trainer/publish/group_messages.h"
#include "services/trainer/publish/reshard_feeds.h"
#include "services/trainer/publish/send_transport.h"
#include "tandem/trainer/v1/publish_order.pb.h"

namespace tandem::trainer {

class SendByReshard : public SendTransport {
 public:
  // Feeds and group outlive it. `world`: all sending ranks, with the leader as rank 0; null if it
  // is alone. `world_timeout`: its timeout between updates. `group_secret`: the trainer ranks'
  // shared secret, which encrypts an update's secret on its way to them; if empty, the update's
  // secret is only as safe as the world's links.
  SendByReshard(ReshardFeeds* feeds, comm::ProcessGroup* world, absl::Duration world_timeout,
                std::string group_secret = "");

  const GroupRoute& route() const override { return route_; }
  bool sends_deltas() const override { return feeds_.deltas(); }
  bool can_keep_frozen() const override { return feeds_.has_frozen(); }
  bool replicas_stream() const override { return true; }
  absl::Status CheckReplica(int num_ranks) override;
  absl::StatusOr<std::vector<ReplicaTables>> TablesFor(const std::vector<int>& replica_ranks,
                                                       bool keeps_frozen) override;
  int64_t model_bytes() const override { return model_bytes_; }
  void Begin(absl::Time deadline) override { limit_.Begin(deadline); }
  absl::Status Order(const SendOrder& order) override;
  absl::StatusOr<SendResult> Send(comm::ProcessGroup& group, const SendOrder& order,
                                  weights::PhaseTimes& times) override;
  absl::Status Drain() override;
  absl::Status End() override;

 private:
  absl::Status TellAll(const v1::PublishOrder& order);
  // Sends the leader's own part.
  absl::StatusOr<ReshardSender::Sent> SendOwn(comm::ProcessGroup& group, const FeedKey& feed,
                                              bool delta, weights::PhaseTimes& times);
  // Names the last message that a rank sends in a feed, for errors.
  std::string LastMessage(int rank, const FeedKey& key);
  // Receives a rank's report. Returns the rank's failure, with its number, as an error; DATA_LOSS
  // if the report arrived damaged. Errors of the group are also in world_->status().
  absl::Status ReceiveReport(int rank, absl::string_view tag, v1::SendReport& report);

  int num_senders() const { return feeds_.num_senders(); }

  ReshardFeeds& feeds_;
  const ChainRoute route_;
  absl::Mutex mu_;  // guards whatever may create a feed
  FleetTables tables_ ABSL_GUARDED_BY(mu_);
  comm::ProcessGroup* const world_;
  const std::string group_secret_;
  std::vector<MessageLink> links_;  // to ranks 1 and up
  int64_t model_bytes_ = 0;
  std::vector<bool> ordered_;  // by rank: whether its report is still due
  GroupDeadline limit_;        // of the world
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_SEND_BY_RESHARD_H_
