// TrainerService: translates the RPCs. Validates a call on gRPC's thread and queues it; the
// collective thread executes and finishes it.
//
// Thread-safe. The leader and the queue outlive it; it outlives the server.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_TRAINER_SERVICE_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_TRAINER_SERVICE_H_

#include <functional>

#include "absl/status/status.h"
#include "services/trainer/service/command_queue.h"
#include "services/trainer/service/trainer_leader.h"
#include "tandem/trainer/v1/trainer_service.grpc.pb.h"

namespace tandem::trainer {

class TrainerService final : public v1::TrainerService::CallbackService {
 public:
  TrainerService(TrainerLeader& leader, CommandQueue& queue) : leader_(leader), queue_(queue) {}

  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context,
                                         const v1::GetModelInfoRequest* request,
                                         v1::GetModelInfoResponse* response) override;
  grpc::ServerUnaryReactor* AcquireLease(grpc::CallbackServerContext* context,
                                         const v1::AcquireLeaseRequest* request,
                                         v1::AcquireLeaseResponse* response) override;
  grpc::ServerUnaryReactor* RenewLease(grpc::CallbackServerContext* context,
                                       const v1::RenewLeaseRequest* request,
                                       v1::RenewLeaseResponse* response) override;
  grpc::ServerUnaryReactor* ReleaseLease(grpc::CallbackServerContext* context,
                                         const v1::ReleaseLeaseRequest* request,
                                         v1::ReleaseLeaseResponse* response) override;
  grpc::ServerReadReactor<v1::TrainStepRequest>* TrainStep(
      grpc::CallbackServerContext* context, v1::TrainStepResponse* response) override;
  grpc::ServerUnaryReactor* ComputeLogProbs(grpc::CallbackServerContext* context,
                                            const v1::ComputeLogProbsRequest* request,
                                            v1::ComputeLogProbsResponse* response) override;
  grpc::ServerUnaryReactor* PublishWeights(grpc::CallbackServerContext* context,
                                           const v1::PublishWeightsRequest* request,
                                           v1::PublishWeightsResponse* response) override;
  grpc::ServerUnaryReactor* GetWeightDigests(grpc::CallbackServerContext* context,
                                             const v1::GetWeightDigestsRequest* request,
                                             v1::GetWeightDigestsResponse* response) override;
  grpc::ServerUnaryReactor* SaveCheckpoint(grpc::CallbackServerContext* context,
                                           const v1::SaveCheckpointRequest* request,
                                           v1::SaveCheckpointResponse* response) override;
  grpc::ServerUnaryReactor* LoadCheckpoint(grpc::CallbackServerContext* context,
                                           const v1::LoadCheckpointRequest* request,
                                           v1::LoadCheckpointResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchResponse>* Watch(grpc::CallbackServerContext* context,
                                                     const v1::WatchRequest* request) override;

 private:
  // Queues `call`, which fills in `response`; skips a caller that has gone by its turn.
  template <typename Response>
  grpc::ServerUnaryReactor* Enqueue(grpc::CallbackServerContext* context, Response* response,
                                    std::function<absl::StatusOr<Response>()> call);

  TrainerLeader& leader_;
  CommandQueue& queue_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_TRAINER_SERVICE_H_
