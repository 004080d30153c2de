// WeightServiceImpl: gRPC service of WeightReceiver.
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_WEIGHT_SERVICE_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_WEIGHT_SERVICE_H_

#include "services/rollout/receive/weight_receiver.h"
#include "tandem/rollout/v1/weight_service.grpc.pb.h"

namespace tandem::rollout {

// Translates calls; never blocks an RPC thread. `receiver` must outlive the server. Call its
// Shutdown() before the server waits for its calls (rpc::ServerOptions::on_drain).
class WeightServiceImpl : public v1::WeightService::CallbackService {
 public:
  explicit WeightServiceImpl(WeightReceiver* receiver) : receiver_(receiver) {}

  grpc::ServerUnaryReactor* GetManifest(grpc::CallbackServerContext* context,
                                        const v1::GetManifestRequest* request,
                                        v1::GetManifestResponse* response) override;
  grpc::ServerUnaryReactor* BeginUpdate(grpc::CallbackServerContext* context,
                                        const v1::BeginUpdateRequest* request,
                                        v1::BeginUpdateResponse* response) override;
  grpc::ServerUnaryReactor* VerifyUpdate(grpc::CallbackServerContext* context,
                                         const v1::VerifyUpdateRequest* request,
                                         v1::VerifyUpdateResponse* response) override;
  grpc::ServerUnaryReactor* CommitUpdate(grpc::CallbackServerContext* context,
                                         const v1::CommitUpdateRequest* request,
                                         v1::CommitUpdateResponse* response) override;
  grpc::ServerUnaryReactor* AbortUpdate(grpc::CallbackServerContext* context,
                                        const v1::AbortUpdateRequest* request,
                                        v1::AbortUpdateResponse* response) override;
  grpc::ServerUnaryReactor* GetDigests(grpc::CallbackServerContext* context,
                                       const v1::GetDigestsRequest* request,
                                       v1::GetDigestsResponse* response) override;
  grpc::ServerWriteReactor<v1::ReadWeightsResponse>* ReadWeights(
      grpc::CallbackServerContext* context, const v1::ReadWeightsRequest* request) override;

 private:
  WeightReceiver* const receiver_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_WEIGHT_SERVICE_H_
