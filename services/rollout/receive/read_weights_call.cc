#include "services/rollout/receive/read_weights_call.h"

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/rpc/message_digest.h"
#include "common/rpc/status_conversion.h"
#include "services/rollout/receive/live_stream.h"

namespace tandem::rollout {
namespace {

// Only one operation is in flight: a copy on the receiver's thread, or a write. So nothing here is
// shared, and the call is not done before its last copy.
class ReadWeightsCall : public grpc::ServerWriteReactor<v1::ReadWeightsResponse> {
 public:
  ReadWeightsCall(WeightReceiver& receiver, absl::StatusOr<std::unique_ptr<LiveStream>> stream)
      : receiver_(receiver) {
    if (stream.ok()) {
      stream_ = *std::move(stream);
      CopyNext();
    } else {
      Finish(rpc::ToGrpcStatus(stream.status()));
    }
  }

  void OnWriteDone(bool ok) override {
    if (ok)
      CopyNext();
    else
      Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the reader is gone"));
  }

  void OnDone() override { delete this; }

 private:
  void CopyNext() {
    const bool added = receiver_.RunSoon([this](WeightStore&) {
      const absl::StatusOr<bool> more = stream_->Next(message_);
      if (more.ok() && *more)
        StartWrite(&message_);
      else
        Finish(rpc::ToGrpcStatus(more.status()));
    });
    if (!added) {
      Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the rollout is shutting down"));
    }
  }

  WeightReceiver& receiver_;
  std::unique_ptr<LiveStream> stream_;
  v1::ReadWeightsResponse message_;
};

}  // namespace

grpc::ServerWriteReactor<v1::ReadWeightsResponse>* StartReadWeights(
    WeightReceiver& receiver, const v1::ReadWeightsRequest& request) {
  const absl::Status intact = rpc::CheckDigest(request);
  if (!intact.ok()) return new ReadWeightsCall(receiver, intact);
  return new ReadWeightsCall(receiver, receiver.OpenLive(request));
}

}  // namespace tandem::rollout
