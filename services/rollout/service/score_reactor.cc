#include "services/rollout/service/score_reactor.h"

#include <utility>
#include <vector>

#include "common/rpc/status_conversion.h"
#include "services/rollout/requests/convert.h"

namespace tandem::rollout {

ScoreReactor* ScoreReactor::Start(Engine& engine, const v1::ScoreRequest& request,
                                  v1::ScoreResponse* response) {
  std::shared_ptr<ScoreReactor> reactor(new ScoreReactor(engine, response));
  {
    absl::MutexLock lock(&reactor->mu_);
    reactor->self_ = reactor;
  }
  const absl::StatusOr<int64_t> handle = engine.Score(
      FromProto(request),
      [reactor](const absl::StatusOr<ScoreResult>& result) { reactor->OnScore(result); });
  if (!handle.ok()) {
    reactor->Finish(rpc::ToGrpcStatus(handle.status()));
    return reactor.get();
  }
  absl::MutexLock lock(&reactor->mu_);
  reactor->handle_ = *handle;
  if (reactor->cancelled_) engine.Cancel(*handle);
  return reactor.get();
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
