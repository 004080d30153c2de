#include "tools/tandem/driver/generate_call.h"

#include <utility>

#include "common/rpc/status_conversion.h"

namespace tandem::driver {

GenerateCall::GenerateCall(grpc::ClientContext& context, PartialGroup& group,
                           std::function<void(int64_t)> on_tokens,
                           std::function<void(absl::Status)> done)
    : context_(context),
      group_(group),
      on_tokens_(std::move(on_tokens)),
      done_(std::move(done)),
      request_(group.NextRequest()) {}

void GenerateCall::Start(rollout::v1::RolloutService::Stub& stub, grpc::ClientContext& context,
                         PartialGroup& group, std::function<void(int64_t)> on_tokens,
                         std::function<void(absl::Status)> done) {
  auto* call = new GenerateCall(context, group, std::move(on_tokens), std::move(done));
  stub.async()->Generate(&context, &call->request_, call);
  call->StartRead(&call->response_);
  call->StartCall();
}

void GenerateCall::OnReadDone(bool ok) {
  if (!ok) return;
  malformed_ = group_.Append(response_);
  if (!malformed_.ok()) {
    context_.TryCancel();
    return;
  }
  if (on_tokens_) on_tokens_(response_.token_ids_size());
  response_.Clear();
  StartRead(&response_);
}

void GenerateCall::OnDone(const grpc::Status& grpc_status) {
  absl::Status status = malformed_.ok() ? rpc::FromGrpcStatus(grpc_status) : malformed_;
  if (status.ok() && !group_.ended()) {
    status = absl::InternalError("the call ended before all samples of its group had ended");
  }
  const std::function<void(absl::Status)> done = done_;
  delete this;
  done(std::move(status));
}

}  // namespace tandem::driver
