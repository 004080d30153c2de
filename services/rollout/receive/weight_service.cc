#include "services/rollout/receive/weight_service.h"

#include <utility>

#include "common/rpc/status_conversion.h"
#include "services/rollout/receive/read_weights_call.h"

namespace tandem::rollout {
namespace {

// Fills in the response and ends the call, whenever the receiver answers.
template <typename Response>
WeightReceiver::Done<Response> Finish(grpc::ServerUnaryReactor* reactor, Response* response) {
  return [reactor, response](absl::StatusOr<Response> answer) {
    if (answer.ok()) *response = *std::move(answer);
    reactor->Finish(rpc::ToGrpcStatus(answer.status()));
  };
}

}  // namespace

grpc::ServerUnaryReactor* WeightServiceImpl::GetManifest(grpc::CallbackServerContext* context,
                                                         const v1::GetManifestRequest*,
                                                         v1::GetManifestResponse* response) {
  auto* reactor = context->DefaultReactor();
  *response = receiver_->GetManifest();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* WeightServiceImpl::BeginUpdate(grpc::CallbackServerContext* context,
                                                         const v1::BeginUpdateRequest* request,
                                                         v1::BeginUpdateResponse* response) {
  auto* reactor = context->DefaultReactor();
  receiver_->BeginUpdate(*request, Finish(reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* WeightServiceImpl::VerifyUpdate(grpc::CallbackServerContext* context,
                                                          const v1::VerifyUpdateRequest* request,
                                                          v1::VerifyUpdateResponse* response) {
  auto* reactor = context->DefaultReactor();
  receiver_->VerifyUpdate(*request, Finish(reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* WeightServiceImpl::CommitUpdate(grpc::CallbackServerContext* context,
                                                          const v1::CommitUpdateRequest* request,
                                                          v1::CommitUpdateResponse* response) {
  auto* reactor = context->DefaultReactor();
  receiver_->CommitUpdate(*request, Finish(reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* WeightServiceImpl::AbortUpdate(grpc::CallbackServerContext* context,
                                                         const v1::AbortUpdateRequest* request,
                                                         v1::AbortUpdateResponse*) {
  auto* reactor = context->DefaultReactor();
  reactor->Finish(rpc::ToGrpcStatus(receiver_->AbortUpdate(*request)));
  return reactor;
}

grpc::ServerUnaryReactor* WeightServiceImpl::GetDigests(grpc::CallbackServerContext* context,
                                                        const v1::GetDigestsRequest*,
                                                        v1::GetDigestsResponse* response) {
  auto* reactor = context->DefaultReactor();
  receiver_->GetDigests(Finish(reactor, response));
  return reactor;
}

grpc::ServerWriteReactor<v1::ReadWeightsResponse>* WeightServiceImpl::ReadWeights(
    grpc::CallbackServerContext*, const v1::ReadWeightsRequest* request) {
  return StartReadWeights(*receiver_, *request);
}

}  // namespace tandem::rollout
