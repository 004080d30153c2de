#include "services/trainer/publish/reshard_feeds.h"

#include "common/status/status_macros.h"

namespace tandem::trainer {

ReshardFeeds::ReshardFeeds(Options options) : options_(std::move(options)) {
  for (const auto& tensor : options_.manifest.tensors()) has_frozen_ |= !tensor.trainable();
}

absl::StatusOr<const ReshardFeeds::Feed*> ReshardFeeds::To(const FeedKey& key) {
  std::unique_ptr<Feed>& feed = feeds_[key];
  if (feed != nullptr) return feed.get();
  auto made = std::make_unique<Feed>();
  ASSIGN_OR_RETURN(made->rollout, options_.rollout(key.num_ranks));
  ASSIGN_OR_RETURN(made->layout,
                   MakeReshardLayout(options_.trainer, made->rollout, options_.manifest,
                                     options_.bucket_bytes, key.keeps_frozen));
  ASSIGN_OR_RETURN(made->sender, ReshardSender::Create(made->layout, options_.shards, options_.rank,
                                                       options_.deltas));
  feed = std::move(made);
  return feed.get();
}

absl::StatusOr<ReshardSender*> ReshardFeeds::SenderTo(const FeedKey& key) {
  ASSIGN_OR_RETURN(const Feed* feed, To(key));
  for (auto& [other_key, other] : feeds_) {
    if (other != nullptr && other_key != key) other->sender->DropBase();
  }
  return feed->sender.get();
}

}  // namespace tandem::trainer
