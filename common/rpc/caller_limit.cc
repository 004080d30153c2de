#include "common/rpc/caller_limit.h"

#include "absl/strings/str_cat.h"

namespace tandem::rpc {

absl::Status CallerLimit::Check(const std::string& caller) const {
  absl::MutexLock lock(&mu_);
  const auto found = calls_.find(caller);
  if (found == calls_.end() || found->second < max_calls_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("this client has ", found->second, " calls in flight, the limit is ", max_calls_,
                   "; wait for some of them, or raise the server's --max-calls-per-client"));
}

void CallerLimit::Begin(const std::string& caller) {
  absl::MutexLock lock(&mu_);
  ++calls_[caller];
}

void CallerLimit::End(const std::string& caller) {
  absl::MutexLock lock(&mu_);
  const auto found = calls_.find(caller);
  if (found != calls_.end() && --found->second == 0) calls_.erase(found);
}

}  // namespace tandem::rpc
