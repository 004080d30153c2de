#include "services/rollout/receive/weight_service.h"

#include <utility>

#include "common/rpc/enum_check.h"
#include "common/rpc/message_digest.h"
#include "common/rpc/request_id.h"
#include "common/rpc/status_conversion.h"
#include "services/rollout/receive/read_weights_call.h"

namespace tandem::rollout {
namespace {

// Fills in the response and ends the call when the receiver responds. The request lives until then.
template <typename Request, typename Response>
WeightReceiver::Done<Response> Finish(grpc::ServerUnaryReactor* reactor, const Request* request,
                                      Response* response) {
  return [reactor, request, response](absl::StatusOr<Response> answer) {
    if (answer.ok()) {
      *response = *std::move(answer);
      rpc::SetDigest(*response, request->message_digest());
    }
    reactor->Finish(rpc::ToGrpcStatus(answer.status()));
  };
}

// Whether the request has an id of a request's size; if not, the call has ended.
template <typename Request>
bool HasValidId(const Request& request, grpc::ServerUnaryReactor* reactor) {
  const absl::Status status = rpc::CheckRequestId(request.request_id());
  if (!status.ok()) reactor->Finish(rpc::ToGrpcStatus(status));
  return status.ok();
}

// Whether the request is what was sent, with a valid id and no unknown enum value; if not, the call
// has ended.
template <typename Request>
bool IsIntact(const Request& request, grpc::ServerUnaryReactor* reactor) {
  absl::Status status = rpc::CheckDigest(request);
  if (status.ok()) status = rpc::CheckEnums(request);
  if (!status.ok()) reactor->Finish(rpc::ToGrpcStatus(status));
  return status.ok() && HasValidId(request, reactor);
}

}  // namespace

grpc::ServerUnaryReactor* WeightServiceImpl::GetManifest(grpc::CallbackServerContext* context,
                                                         const v1::GetManifestRequest* request,
                                                         v1::GetManifestResponse* response) {
  auto* reactor = context->DefaultReactor();
  if (!HasValidId(*request, reactor)) return reactor;
  const absl::Status claim = receiver_->CheckClaim(*request);
  if (claim.ok()) {
    Finish(reactor, request, response)(receiver_->GetManifest());
  } else {
    reactor->Finish(rpc::ToGrpcStatus(claim));
  }
  return reactor;
}

grpc::ServerUnaryReactor* WeightServiceImpl::BeginUpdate(grpc::CallbackServerContext* context,
                                                         const v1::BeginUpdateRequest* request,
                                                         v1::BeginUpdateResponse* response) {
  auto* reactor = context->DefaultReactor();
  if (IsIntact(*request, reactor)) {
    receiver_->BeginUpdate(*request, Finish(reactor, request, response));
  }
  return reactor;
}

grpc::ServerUnaryReactor* WeightServiceImpl::VerifyUpdate(grpc::CallbackServerContext* context,
                                                          const v1::VerifyUpdateRequest* request,
                                                          v1::VerifyUpdateResponse* response) {
  auto* reactor = context->DefaultReactor();
  if (IsIntact(*request, reactor)) {
    receiver_->VerifyUpdate(*request, Finish(reactor, request, response));
  }
  return reactor;
}

grpc::ServerUnaryReactor* WeightServiceImpl::CommitUpdate(grpc::CallbackServerContext* context,
                                                          const v1::CommitUpdateRequest* request,
                                                          v1::CommitUpdateResponse* response) {
  auto* reactor = context->DefaultReactor();
  if (IsIntact(*request, reactor)) {
    receiver_->CommitUpdate(*request, Finish(reactor, request, response));
  }
  return reactor;
}

grpc::ServerUnaryReactor* WeightServiceImpl::AbortUpdate(grpc::CallbackServerContext* context,
                                                         const v1::AbortUpdateRequest* request,
                                                         v1::AbortUpdateResponse* response) {
  auto* reactor = context->DefaultReactor();
  if (!IsIntact(*request, reactor)) return reactor;
  rpc::SetDigest(*response, request->message_digest());
  reactor->Finish(rpc::ToGrpcStatus(receiver_->AbortUpdate(*request)));
  return reactor;
}

grpc::ServerUnaryReactor* WeightServiceImpl::GetDigests(grpc::CallbackServerContext* context,
                                                        const v1::GetDigestsRequest* request,
                                                        v1::GetDigestsResponse* response) {
  auto* reactor = context->DefaultReactor();
  if (HasValidId(*request, reactor)) receiver_->GetDigests(Finish(reactor, request, response));
  return reactor;
}

grpc::ServerWriteReactor<v1::ReadWeightsResponse>* WeightServiceImpl::ReadWeights(
    grpc::CallbackServerContext*, const v1::ReadWeightsRequest* request) {
  return StartReadWeights(*receiver_, *request);
}

}  // namespace tandem::rollout
