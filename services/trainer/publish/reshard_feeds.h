// ReshardFeeds: one trainer rank's senders, by the number of ranks of the replica that is fed. Each
// is made when it is first asked for; all ranks make the same, from numbers alone.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_RESHARD_FEEDS_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_RESHARD_FEEDS_H_

#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/weights/holdings.h"
#include "common/weights/model_layout.h"
#include "services/trainer/publish/reshard_sender.h"

namespace tandem::trainer {

// The layout of a replica of so many ranks; an error where the model cannot be split so.
using RolloutLayouts = std::function<absl::StatusOr<weights::ModelLayout>(int num_ranks)>;

// Threads: the rank's collective thread; on the leader To() is also called by others, one at a time
// and not while Send() runs.
class ReshardFeeds {
 public:
  struct Options {
    weights::Holdings trainer;  // of all ranks
    int rank = 0;               // this one
    ShardedWeights shards;      // its
    RolloutLayouts rollout;
    weights::Manifest manifest;  // of whole tensors, in wire type
    int64_t bucket_bytes = 0;
    bool deltas = false;
  };
  struct Feed {
    weights::ModelLayout rollout;
    ReshardLayout layout;
    std::unique_ptr<ReshardSender> sender;
  };

  explicit ReshardFeeds(Options options) : options_(std::move(options)) {}

  int num_senders() const { return options_.trainer.num_ranks(); }
  bool deltas() const { return options_.deltas; }
  const weights::Manifest& manifest() const { return options_.manifest; }

  // To a replica of so many ranks; stays where it is. Errors: those of the layout and of the plan.
  absl::StatusOr<const Feed*> To(int num_ranks);

  // As ReshardSender::Send(). Only the replica size that was sent to last has a base: a rank keeps
  // one shard for it, whatever replicas there are.
  absl::StatusOr<ReshardSender::Sent> Send(comm::ProcessGroup& group, int num_ranks, bool delta,
                                           weights::PhaseTimes& times);

 private:
  const Options options_;
  std::map<int, std::unique_ptr<Feed>> feeds_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_RESHARD_FEEDS_H_
