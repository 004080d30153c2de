// ReceiveByStream: this rank reads the live weights of the same rank of another replica
// (stream_reader.h). It joins no group, so nobody waits for it.
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_RECEIVE_BY_STREAM_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_RECEIVE_BY_STREAM_H_

#include <functional>
#include <memory>
#include <string>

#include "services/rollout/receive/receive_transport.h"
#include "services/rollout/receive/stream_reader.h"
#include "services/rollout/receive/weight_store.h"

namespace tandem::rollout {

class ReceiveByStream : public ReceiveTransport {
 public:
  // `store` outlives it.
  ReceiveByStream(const WeightStore& store, StreamReader::Options options)
      : store_(store), reader_(options) {}

  absl::Status Check(const v1::BeginUpdateRequest& request) const override;
  absl::StatusOr<weights::TransferPlan> CheckBuckets(
      const v1::BeginUpdateRequest& request) const override;
  // Both sides cut the tensors into the same buckets, whatever the trainer's plan.
  absl::StatusOr<std::shared_ptr<const weights::TransferPlan>> PlanFor(
      std::shared_ptr<const weights::TransferPlan> plan) const override;
  absl::Status AwaitStart(const IncomingUpdate&) override { return absl::OkStatus(); }
  absl::Status Receive(const IncomingUpdate& update, const weights::TransferPlan& plan,
                       weights::BucketSink& sink, IncomingTransfer& transfer) override;
  std::string Name(const v1::BeginUpdateRequest& request) const override;
  void Drop() override {}
  std::function<void(absl::string_view)> Stopper() override {
    return [this](absl::string_view) { reader_.Abort(); };
  }

 private:
  const WeightStore& store_;
  StreamReader reader_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_RECEIVE_BY_STREAM_H_
