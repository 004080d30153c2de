#include "services/rollout/service/score_reactor.h"

#include <utility>
#include <vector>

#include "common/rpc/status_conversion.h"
#include "common/status/exceptions.h"
#include "common/status/status_macros.h"
#include "services/rollout/requests/convert.h"

namespace tandem::rollout {

ScoreReactor* ScoreReactor::Start(Engine& engine, http::WorkerPool& pool,
                                  const v1::ScoreRequest& request, v1::ScoreResponse* response) {
  std::shared_ptr<ScoreReactor> reactor(new ScoreReactor(engine, response));
  {
    absl::MutexLock lock(&reactor->mu_);
    reactor->self_ = reactor;
  }
  if (request.images().empty()) {
    reactor->Run(request);
  } else if (!pool.Submit([reactor, request = &request] { reactor->Run(*request); })) {
    // gRPC keeps the request until the call ends, which this one does after its turn.
    reactor->OnScore(absl::ResourceExhaustedError(
        "no thread available to read the request's images; try again later"));
  }
  return reactor.get();
}

void ScoreReactor::Run(const v1::ScoreRequest& request) {
  bool cancelled = false;
  {
    absl::MutexLock lock(&mu_);
    cancelled = cancelled_;
  }
  const absl::Status status =
      cancelled ? absl::CancelledError("the caller cancelled before the images were read")
                : Catch([&] { return Submit(request); });
  if (!status.ok()) OnScore(status);
}

absl::Status ScoreReactor::Submit(const v1::ScoreRequest& request) {
  ScoreRequest spec = FromProto(request);
  ASSIGN_OR_RETURN(spec.images, engine_.ReadImages(ImageFilesOf(request.images()), spec.token_ids));
  std::shared_ptr<ScoreReactor> self;
  {
    absl::MutexLock lock(&mu_);
    self = self_;
  }
  ASSIGN_OR_RETURN(
      const int64_t handle,
      engine_.Score(std::move(spec),
                    [self](const absl::StatusOr<ScoreResult>& result) { self->OnScore(result); }));
  absl::MutexLock lock(&mu_);
  handle_ = handle;
  if (cancelled_) engine_.Cancel(handle);
  return absl::OkStatus();
}

void ScoreReactor::OnScore(const absl::StatusOr<ScoreResult>& result) {
  if (result.ok()) {
    response_->mutable_logprobs()->Add(result->logprobs.begin(), result->logprobs.end());
    response_->mutable_class_logits()->Add(result->class_logits.begin(),
                                           result->class_logits.end());
    for (const std::vector<TokenLogprob>& position : result->top_logprobs) {
      for (const TokenLogprob& token : position) {
        response_->add_top_token_ids(static_cast<uint32_t>(token.id));
        response_->add_top_logprobs(token.logprob);
      }
    }
    response_->set_policy_version(result->policy_version);
    response_->set_incarnation(result->incarnation);
  }
  Finish(rpc::ToGrpcStatus(result.status()));
}

void ScoreReactor::OnCancel() {
  absl::MutexLock lock(&mu_);
  cancelled_ = true;
  if (handle_ >= 0) engine_.Cancel(handle_);
}

void ScoreReactor::OnDone() {
  std::shared_ptr<ScoreReactor> self;  // outlives the lock, which is its own
  absl::MutexLock lock(&mu_);
  self = std::move(self_);
}

}  // namespace tandem::rollout
