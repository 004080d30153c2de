// GenerateCall: one Generate call to one replica, which adds its responses to a PartialGroup.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_GENERATE_CALL_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_GENERATE_CALL_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "tandem/rollout/v1/rollout_service.grpc.pb.h"
#include "tools/tandem/driver/partial_group.h"

namespace tandem::driver {

// Owns itself: OnDone, gRPC's last callback, reports the outcome and deletes it.
class GenerateCall final : public grpc::ClientReadReactor<rollout::v1::GenerateResponse> {
 public:
  // `stub`, `group` and `context` must live, and nobody else may use the group, until `done` is
  // called from one of gRPC's threads: with OK if every sample has ended, INTERNAL if a response
  // breaks the contract, else the status of the call.
  static void Start(rollout::v1::RolloutService::Stub& stub, grpc::ClientContext& context,
                    PartialGroup& group, std::function<void(int64_t)> on_tokens,
                    std::function<void(absl::Status)> done);

  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& grpc_status) override;

 private:
  GenerateCall(grpc::ClientContext& context, PartialGroup& group,
               std::function<void(int64_t)> on_tokens, std::function<void(absl::Status)> done);

  grpc::ClientContext& context_;
  PartialGroup& group_;
  const std::function<void(int64_t)> on_tokens_;
  const std::function<void(absl::Status)> done_;
  const rollout::v1::GenerateRequest request_;
  rollout::v1::GenerateResponse response_;
  absl::Status malformed_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_GENERATE_CALL_H_
