// ReceiveByBroadcast: rank 0 of the update's group, the leader, broadcasts what all ranks hold to
// this rank too. The rank's own part comes from the leader or from `fed_by`, and passes on to
// `forward_to` in the same group.
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_RECEIVE_BY_BROADCAST_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_RECEIVE_BY_BROADCAST_H_

#include <functional>
#include <memory>
#include <string>

#include "common/weights/broadcast_transport.h"
#include "services/rollout/receive/receive_group.h"
#include "services/rollout/receive/receive_transport.h"
#include "services/rollout/receive/weight_store.h"

namespace tandem::rollout {

class ReceiveByBroadcast : public ReceiveTransport {
 public:
  // `group`, which other transports may use as well, and `store` outlive it.
  ReceiveByBroadcast(ReceiveGroup& group, const WeightStore& store)
      : group_(group), store_(store) {}

  absl::Status Check(const v1::BeginUpdateRequest& request) const override;
  absl::StatusOr<weights::TransferPlan> CheckBuckets(
      const v1::BeginUpdateRequest& request) const override;
  absl::Status AwaitStart(const IncomingUpdate& update) override {
    return group_.AwaitStart(update);
  }
  absl::Status Receive(const IncomingUpdate& update, const weights::TransferPlan& plan,
                       weights::BucketSink& sink, IncomingTransfer& transfer) override;
  std::string Name(const v1::BeginUpdateRequest& request) const override;
  void Drop() override;
  std::function<void(absl::string_view)> Stopper() override { return group_.Stopper(); }

 private:
  ReceiveGroup& group_;
  const WeightStore& store_;
  std::unique_ptr<weights::BroadcastTransport> buckets_;  // keeps its buffers between updates
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_RECEIVE_BY_BROADCAST_H_
