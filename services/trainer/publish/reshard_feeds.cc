#include "services/trainer/publish/reshard_feeds.h"

#include "common/status/status_macros.h"

namespace tandem::trainer {

absl::StatusOr<const ReshardFeeds::Feed*> ReshardFeeds::To(int num_ranks) {
  std::unique_ptr<Feed>& feed = feeds_[num_ranks];
  if (feed != nullptr) return feed.get();
  auto made = std::make_unique<Feed>();
  ASSIGN_OR_RETURN(made->rollout, options_.rollout(num_ranks));
  ASSIGN_OR_RETURN(made->layout, MakeReshardLayout(options_.trainer, made->rollout,
                                                   options_.manifest, options_.bucket_bytes));
  ASSIGN_OR_RETURN(made->sender, ReshardSender::Create(made->layout, options_.shards, options_.rank,
                                                       options_.deltas));
  feed = std::move(made);
  return feed.get();
}

absl::StatusOr<ReshardSender*> ReshardFeeds::SenderTo(int num_ranks) {
  ASSIGN_OR_RETURN(const Feed* feed, To(num_ranks));
  for (auto& [ranks, other] : feeds_) {
    if (other != nullptr && ranks != num_ranks) other->sender->DropBase();
  }
  return feed->sender.get();
}

}  // namespace tandem::trainer
