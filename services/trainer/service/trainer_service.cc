#include "services/trainer/service/trainer_service.h"

#include <utility>

#include "common/rpc/message_digest.h"
#include "common/rpc/status_conversion.h"
#include "common/rpc/trace_interceptor.h"
#include "common/status/status_macros.h"
#include "services/trainer/service/request_validation.h"
#include "services/trainer/service/train_step_reactor.h"
#include "services/trainer/service/watch_reactor.h"

namespace tandem::trainer {
namespace {

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(rpc::ToGrpcStatus(status));
  return reactor;
}

}  // namespace

template <typename Response>
grpc::ServerUnaryReactor* TrainerService::Enqueue(grpc::CallbackServerContext* context,
                                                  Response* response,
                                                  std::function<absl::StatusOr<Response>()> call) {
  const absl::Status refusal = leader_.status().Refusal();
  if (!refusal.ok()) return Answer(context, refusal);
  // Context, request and response live until Finish().
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Status queued = queue_.Submit([context, reactor, response, call = std::move(call)] {
    if (context->IsCancelled()) {
      reactor->Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the caller cancelled"));
      return;
    }
    const telemetry::ScopedTraceContext trace(rpc::TraceContextIn(&context->client_metadata()));
    absl::StatusOr<Response> result = call();
    if (result.ok()) *response = *std::move(result);
    reactor->Finish(rpc::ToGrpcStatus(result.status()));
  });
  if (!queued.ok()) reactor->Finish(rpc::ToGrpcStatus(queued));
  return reactor;
}

grpc::ServerUnaryReactor* TrainerService::GetModelInfo(grpc::CallbackServerContext* context,
                                                       const v1::GetModelInfoRequest* request,
                                                       v1::GetModelInfoResponse* response) {
  *response = leader_.GetModelInfo();
  return Answer(context, leader_.status().Refusal());  // OK while the trainer lives
}

// Runs outside of the collective thread, so that heartbeats count while a step runs.
grpc::ServerUnaryReactor* TrainerService::AcquireLease(grpc::CallbackServerContext* context,
                                                       const v1::AcquireLeaseRequest* request,
                                                       v1::AcquireLeaseResponse* response) {
  absl::Status status = leader_.status().Refusal();
  if (!status.ok()) return Answer(context, status);
  absl::StatusOr<v1::AcquireLeaseResponse> granted = leader_.AcquireLease(*request);
  if (granted.ok()) *response = *std::move(granted);
  return Answer(context, granted.status());
}

grpc::ServerUnaryReactor* TrainerService::RenewLease(grpc::CallbackServerContext* context,
                                                     const v1::RenewLeaseRequest* request,
                                                     v1::RenewLeaseResponse*) {
  return Answer(context, leader_.RenewLease(*request));
}

grpc::ServerUnaryReactor* TrainerService::ReleaseLease(grpc::CallbackServerContext* context,
                                                       const v1::ReleaseLeaseRequest* request,
                                                       v1::ReleaseLeaseResponse*) {
  leader_.ReleaseLease(*request);
  return Answer(context, absl::OkStatus());
}

grpc::ServerReadReactor<v1::TrainStepRequest>* TrainerService::TrainStep(
    grpc::CallbackServerContext* context, v1::TrainStepResponse* response) {
  return new TrainStepReactor(context, leader_, queue_, response);
}

grpc::ServerUnaryReactor* TrainerService::ComputeLogProbs(grpc::CallbackServerContext* context,
                                                          const v1::ComputeLogProbsRequest* request,
                                                          v1::ComputeLogProbsResponse* response) {
  absl::Status valid =
      ValidateComputeLogProbs(*request, leader_.LimitsFor(v1::OBJECTIVE_SUPERVISED));
  if (valid.ok()) valid = leader_.CheckImages(*request);
  if (!valid.ok()) return Answer(context, valid);
  return Enqueue<v1::ComputeLogProbsResponse>(
      context, response, [this, request] { return leader_.ComputeLogProbs(*request); });
}

grpc::ServerUnaryReactor* TrainerService::PublishWeights(grpc::CallbackServerContext* context,
                                                         const v1::PublishWeightsRequest* request,
                                                         v1::PublishWeightsResponse* response) {
  absl::Status valid;
  if (!request->message_digest().empty()) valid = rpc::CheckDigest(*request);
  if (valid.ok()) valid = ValidatePublishWeights(*request);
  if (valid.ok()) valid = leader_.CheckWrite(request->lease());
  if (!valid.ok()) return Answer(context, valid);
  // A client's channel retries UNAVAILABLE. A failed update has taken its time and names the fault;
  // a retry would end at the call's deadline, which names nothing.
  context->AddTrailingMetadata("grpc-retry-pushback-ms", "-1");
  return Enqueue<v1::PublishWeightsResponse>(
      context, response, [this, request]() -> absl::StatusOr<v1::PublishWeightsResponse> {
        ASSIGN_OR_RETURN(v1::PublishWeightsResponse answer, leader_.PublishWeights(*request));
        rpc::SetDigest(answer, request->message_digest());
        return answer;
      });
}

grpc::ServerUnaryReactor* TrainerService::GetWeightDigests(
    grpc::CallbackServerContext* context, const v1::GetWeightDigestsRequest* request,
    v1::GetWeightDigestsResponse* response) {
  return Enqueue<v1::GetWeightDigestsResponse>(
      context, response, [this, request] { return leader_.GetWeightDigests(*request); });
}

grpc::ServerUnaryReactor* TrainerService::SaveCheckpoint(grpc::CallbackServerContext* context,
                                                         const v1::SaveCheckpointRequest* request,
                                                         v1::SaveCheckpointResponse* response) {
  const absl::Status valid = ValidateSaveCheckpoint(*request);
  if (!valid.ok()) return Answer(context, valid);
  if (absl::Status held = leader_.CheckWrite(request->lease()); !held.ok()) {
    return Answer(context, held);
  }
  return Enqueue<v1::SaveCheckpointResponse>(
      context, response, [this, request] { return leader_.SaveCheckpoint(*request); });
}

grpc::ServerUnaryReactor* TrainerService::LoadCheckpoint(grpc::CallbackServerContext* context,
                                                         const v1::LoadCheckpointRequest* request,
                                                         v1::LoadCheckpointResponse* response) {
  absl::Status valid = ValidateLoadCheckpoint(*request);
  if (valid.ok()) valid = leader_.CheckWrite(request->lease());
  if (!valid.ok()) return Answer(context, valid);
  return Enqueue<v1::LoadCheckpointResponse>(
      context, response, [this, request] { return leader_.LoadCheckpoint(*request); });
}

grpc::ServerWriteReactor<v1::WatchResponse>* TrainerService::Watch(
    grpc::CallbackServerContext* context, const v1::WatchRequest* request) {
  return new WatchReactor(leader_.status());
}

}  // namespace tandem::trainer
