// DataPlane: how the bytes of an update get from the trainer's ranks to the replicas. The leader's
// side of it; what the transaction is about them lives in UpdateAttempt.
//
// Threads: the leader's collective thread, but for what says otherwise.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_DATA_PLANE_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_DATA_PLANE_H_

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
#include "tandem/common/v1/weights.pb.h"

namespace tandem::trainer {

// What one rank of a replica is told of an update before it.
struct RankTable {
  weights::Manifest manifest;  // of what the rank holds
  std::vector<weights::Bucket> buckets;
};

// What the ranks of one replica are told.
struct ReplicaTables {
  // Equal where the tables are: by it is known whether a replica has been told.
  std::string id;
  std::shared_ptr<const std::vector<RankTable>> ranks;
  // By rank, what it passes on to the next replica, which is split otherwise; null: not so.
  std::shared_ptr<const std::vector<weights::RelayedBuckets>> relayed;
};

// One attempt, as the other trainer ranks must know it.
struct SendOrder {
  std::string update_id;
  common::v1::GroupRendezvous rendezvous;  // of the first group; rank is the leader's
  absl::Time deadline;
  bool delta = false;
  int replica_ranks = 0;  // of the replica that is fed
  // Ends the attempt on the other ranks, which otherwise go on until the deadline. Any thread.
  std::function<void()> call_off;
};

struct SendResult {
  std::vector<weights::TensorDigest> digests;  // of whole tensors, in manifest order
  int64_t sent_bytes = 0;                      // of all ranks
  int64_t max_rank_sent_bytes = 0;
  std::optional<double> changed_share;  // of a delta
};

class DataPlane {
 public:
  virtual ~DataPlane() = default;

  // As in BeginUpdateRequest.transport.
  virtual std::string transport() const = 0;
  // The trainer's ranks in the group that they share with replicas.
  virtual int num_senders() const = 0;
  // Whether each replica is fed by the one before it, in a group of their own, and the first one
  // alone by the trainer; else all are in one group.
  virtual bool chained() const = 0;
  // Whether only what changed can be sent, where every replica has the version that was sent last.
  virtual bool sends_deltas() const = 0;
  // What is wrong with a replica of so many ranks, over which the model cannot be split. Any
  // thread, as the next one.
  virtual absl::Status CheckReplica(int num_ranks) = 0;
  // Of replicas of so many ranks each, in the order in which they are fed: where they are fed by
  // each other, larger ones first. Errors: those of CheckReplica() and of the plans.
  virtual absl::StatusOr<std::vector<ReplicaTables>> TablesFor(
      const std::vector<int>& replica_ranks) = 0;
  virtual int64_t model_bytes() const = 0;

  // Before an update: what is waited for in the trainer's own group until End() ends by then.
  virtual void Begin(absl::Time deadline) = 0;
  // Before the leader joins the group: tells the other ranks to.
  virtual absl::Status Order(const SendOrder& order) = 0;
  // Errors are those of the group, with the bucket, or another rank's.
  virtual absl::StatusOr<SendResult> Send(comm::ProcessGroup& group, const SendOrder& order,
                                          weights::PhaseTimes& times) = 0;
  // After an attempt that ended before or within Send(): waits until the other ranks have left it.
  virtual absl::Status Drain() = 0;
  // Lets the other ranks' Follow() return.
  virtual absl::Status End() = 0;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_DATA_PLANE_H_
