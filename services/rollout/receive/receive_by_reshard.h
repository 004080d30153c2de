// ReceiveByReshard: this rank receives its own parts, from the trainer's ranks or from the replica
// before it, and forwards them to the next replica: whole or cut for another split, as bytes
// (`reshard`) or as changes (`delta`).
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_RECEIVE_BY_RESHARD_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_RECEIVE_BY_RESHARD_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/weights/relay_sender.h"
#include "common/weights/reshard_receiver.h"
#include "services/rollout/receive/receive_group.h"
#include "services/rollout/receive/receive_transport.h"
#include "services/rollout/receive/weight_store.h"

namespace tandem::rollout {

class ReceiveByReshard : public ReceiveTransport {
 public:
  // `group`, which other transports may use as well, and `store` outlive it.
  ReceiveByReshard(ReceiveGroup& group, WeightStore& store)
      : group_(group), forward_(store.ops().device()), store_(store) {}

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
  std::function<void(absl::string_view)> Stopper() override;

 private:
  // Joins the group in which this rank forwards, if it does, and points `links` there.
  absl::Status JoinForward(const IncomingUpdate& update, const weights::TransferPlan& plan,
                           absl::Time join_by, weights::ReceiveLinks& links,
                           IncomingTransfer& transfer);

  ReceiveGroup& group_;
  ReceiveGroup forward_;  // in which this rank forwards to the next replica
  WeightStore& store_;
  std::unique_ptr<weights::ReshardReceiver> buckets_;  // keeps its buffers between updates
  std::optional<weights::RelaySender> relay_;          // of the transfer in progress
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_RECEIVE_BY_RESHARD_H_
