// ReshardFeeds: one trainer rank's senders, by the number of ranks of the fed replica and whether
// it keeps the frozen tensors. Creates each on first use; all ranks derive the same ones from the
// numbers alone.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_RESHARD_FEEDS_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_RESHARD_FEEDS_H_

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/weights/holdings.h"
#include "common/weights/model_layout.h"
#include "services/trainer/publish/reshard_sender.h"

namespace tandem::trainer {

// Returns the layout of a replica with `num_ranks` ranks; an error if the model cannot be split
// that way.
using RolloutLayouts = std::function<absl::StatusOr<weights::ModelLayout>(int num_ranks)>;

struct FeedKey {
  int num_ranks = 0;          // of the fed replica
  bool keeps_frozen = false;  // only trainable tensors are sent

  auto operator<=>(const FeedKey&) const = default;
};

// Threads: the rank's collective thread; on the leader other threads also call To(), one at a time
// and not while a sender sends.
class ReshardFeeds {
 public:
  struct Options {
    weights::Holdings trainer;  // of all ranks
    int rank = 0;               // this one
    RankShards shards;          // this rank's
    RolloutLayouts rollout;
    weights::Manifest manifest;  // of whole tensors, in wire type; says which are trainable
    int64_t bucket_bytes = 0;
    bool deltas = false;
  };
  struct Feed {
    weights::ModelLayout rollout;
    ReshardLayout layout;
    std::unique_ptr<ReshardSender> sender;
  };

  explicit ReshardFeeds(Options options);

  int num_senders() const { return options_.trainer.num_ranks(); }
  bool deltas() const { return options_.deltas; }
  bool has_frozen() const { return has_frozen_; }
  const weights::Manifest& manifest() const { return options_.manifest; }
  // The device of the bytes that are sent.
  at::Device device() const { return options_.shards.ops->device(); }

  // The pointer stays valid. Errors: those of the layout and of the plan.
  absl::StatusOr<const Feed*> To(const FeedKey& key);

  // The sender of a feed. Drops the bases of the other senders, so a rank keeps one shard for
  // deltas, whatever the replicas.
  absl::StatusOr<ReshardSender*> SenderTo(const FeedKey& key);

 private:
  const Options options_;
  bool has_frozen_ = false;
  std::map<FeedKey, std::unique_ptr<Feed>> feeds_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_RESHARD_FEEDS_H_
