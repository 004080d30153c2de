#include "services/rollout/requests/byte_budget.h"

#include <algorithm>

#include "absl/time/time.h"

namespace tandem::rollout {
namespace {

// How soon a caller that has gone leaves the queue.
constexpr absl::Duration kBetweenChecks = absl::Milliseconds(200);

}  // namespace

ByteBudget::Share::~Share() {
  if (bytes_ == 0) return;
  absl::MutexLock lock(&budget_->mu_);
  budget_->used_bytes_ -= bytes_;
}

absl::StatusOr<ByteBudget::Share> ByteBudget::Take(int64_t bytes,
                                                   absl::FunctionRef<absl::Status()> check) {
  if (bytes <= kFreeBytes) return Share(this, 0);
  bytes = std::min(bytes, total_bytes_);
  absl::MutexLock lock(&mu_);
  const int64_t ticket = next_ticket_++;
  waiting_.insert(ticket);
  const auto is_next = [this, ticket, bytes] {
    mu_.AssertHeld();
    return *waiting_.begin() == ticket && used_bytes_ + bytes <= total_bytes_;
  };
  while (!mu_.AwaitWithTimeout(absl::Condition(&is_next), kBetweenChecks)) {
    mu_.Unlock();
    const absl::Status status = check();
    mu_.Lock();
    if (status.ok()) continue;
    waiting_.erase(ticket);
    return status;
  }
  waiting_.erase(ticket);
  used_bytes_ += bytes;
  return Share(this, bytes);
}

}  // namespace tandem::rollout
