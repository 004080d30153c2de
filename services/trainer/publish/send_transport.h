// SendTransport: the trainer's end of a transport, which moves an update's bytes from its ranks to
// the replicas. UpdateAttempt runs the transaction around it. The replicas' end is
// services/rollout/receive/receive_transport.h; route.h says who feeds whom.
//
//   broadcast        send_by_broadcast.h
//   reshard, delta   send_by_reshard.h
//
// Threads: the leader's collective thread, unless a comment says otherwise.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_SEND_TRANSPORT_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_SEND_TRANSPORT_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/comm/process_group.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/phase_times.h"
#include "common/weights/relay_table.h"
#include "services/trainer/publish/route.h"
#include "tandem/common/v1/weights.pb.h"

namespace tandem::trainer {

// The tables that one rank of a replica receives before an update.
struct RankTable {
  weights::Manifest manifest;  // of the tensors that the rank holds
  std::vector<weights::Bucket> buckets;
};

// The tables for all ranks of one replica.
struct ReplicaTables {
  // Identifies the tables: equal ids mean equal tables, so a replica that has them is not sent them
  // again.
  std::string id;
  std::shared_ptr<const std::vector<RankTable>> ranks;
  // By rank, the buckets it forwards to a next replica with another split; null: the split is the
  // same, or nothing follows.
  std::shared_ptr<const std::vector<weights::RelayedBuckets>> relayed;
};

// One attempt, as the other trainer ranks receive it.
struct SendOrder {
  std::string update_id;
  common::v1::GroupRendezvous rendezvous;  // of the first group; rank is the leader's
  absl::Time deadline;
  bool delta = false;
  bool keeps_frozen = false;  // the replicas keep their frozen tensors, which are not sent
  std::vector<int> fleet;  // ranks of every replica, in feeding order: the trainer feeds the first
  // Ends the attempt on the other ranks, which otherwise continue until the deadline. Any thread.
  std::function<void()> call_off;
};

struct SendResult {
  std::vector<weights::TensorDigest> digests;  // of whole tensors, in manifest order
  int64_t sent_bytes = 0;                      // of all ranks
  int64_t max_rank_sent_bytes = 0;
  std::optional<double> changed_share;  // of a delta
};

class SendTransport {
 public:
  virtual ~SendTransport() = default;

  // Who feeds whom. Constant.
  virtual const GroupRoute& route() const = 0;
  // Whether it can send only changes, if every replica has the version that was sent last.
  virtual bool sends_deltas() const = 0;
  // Whether it can leave out the frozen tensors, and the model has any.
  virtual bool can_keep_frozen() const = 0;
  // Whether a late replica can read the version from one that has it (stream_feed.h); otherwise the
  // trainer feeds it.
  virtual bool replicas_stream() const = 0;
  // Returns why the model cannot be split over a replica of `num_ranks` ranks, or OK. Any thread,
  // like TablesFor().
  virtual absl::Status CheckReplica(int num_ranks) = 0;
  // Tables for replicas with these numbers of ranks, in the route's feeding order. `keeps_frozen`:
  // for trainable tensors only; requires can_keep_frozen(). Errors: those of CheckReplica() and of
  // the plans.
  virtual absl::StatusOr<std::vector<ReplicaTables>> TablesFor(
      const std::vector<int>& replica_ranks, bool keeps_frozen) = 0;
  virtual int64_t model_bytes() const = 0;

  // Call before an update: until End(), waits in the trainer's own group end at `deadline` plus
  // kReportGrace (group_deadline.h).
  virtual void Begin(absl::Time deadline) = 0;
  // Call before the leader joins the group: tells the other ranks to join.
  virtual absl::Status Order(const SendOrder& order) = 0;
  // Errors: the group's, naming the bucket, or another rank's.
  virtual absl::StatusOr<SendResult> Send(comm::ProcessGroup& group, const SendOrder& order,
                                          weights::PhaseTimes& times) = 0;
  // Call after an attempt that ended before or within Send(): waits until the other ranks have left
  // it.
  virtual absl::Status Drain() = 0;
  // Lets the other ranks' Follow() return.
  virtual absl::Status End() = 0;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_SEND_TRANSPORT_H_
