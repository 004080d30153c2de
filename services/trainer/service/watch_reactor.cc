#include "services/trainer/service/watch_reactor.h"

#include <utility>

#include "common/rpc/status_conversion.h"

namespace tandem::trainer {

WatchReactor::WatchReactor(TrainerStatus& status) : status_(status) {
  subscription_ = status_.Subscribe([this](const v1::WatchResponse& response,
                                           const absl::Status* end) { OnChange(response, end); });
}

void WatchReactor::OnChange(const v1::WatchResponse& response, const absl::Status* end) {
  absl::MutexLock lock(&mu_);
  waiting_ = response;
  if (end != nullptr) end_ = *end;
  Advance();
}

void WatchReactor::Advance() {
  if (finished_ || is_writing_) return;
  if (waiting_.has_value()) {
    writing_ = *std::move(waiting_);
    waiting_.reset();
    is_writing_ = true;
    StartWrite(&writing_);
  } else if (end_.has_value()) {
    finished_ = true;
    Finish(rpc::ToGrpcStatus(*end_));
  }
}

void WatchReactor::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mu_);
  is_writing_ = false;
  if (!ok) {
    waiting_.reset();
    end_ = absl::CancelledError("the caller cancelled");
  }
  Advance();
}

void WatchReactor::OnCancel() {
  absl::MutexLock lock(&mu_);
  waiting_.reset();
  end_ = absl::CancelledError("the caller cancelled");
  Advance();
}

void WatchReactor::OnDone() {
  status_.Unsubscribe(subscription_);
  delete this;
}

}  // namespace tandem::trainer
