// RunWithDeadline: runs a call that may block for ever, but returns by a deadline. The call runs on
// its own thread. If the deadline passes or `cancel` is notified first, RunWithDeadline sets
// `abandoned` and leaves the thread behind; the call must then end soon. It may touch only state of
// which it shares ownership.
#ifndef TANDEM_COMMON_COMM_RUN_WITH_DEADLINE_H_
#define TANDEM_COMMON_COMM_RUN_WITH_DEADLINE_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tandem::comm {

// Converts to c10d's timeout type: at least 1 ms, because 0 would mean to wait for ever.
inline std::chrono::milliseconds ToMilliseconds(absl::Duration d) {
  return std::chrono::milliseconds(std::max<int64_t>(1, absl::ToInt64Milliseconds(d)));
}

// Returns the first line of an exception's message: c10's messages append stack traces.
inline std::string FirstLine(const char* what) {
  const std::string text(what);
  return text.substr(0, text.find('\n'));
}

// Messages start with `what`. Errors: DEADLINE_EXCEEDED, CANCELLED, and UNAVAILABLE if the call
// throws.
template <typename T>
absl::StatusOr<T> RunWithDeadline(std::function<T()> call, absl::Time deadline,
                                  const absl::Notification* cancel,
                                  std::shared_ptr<std::atomic<bool>> abandoned,
                                  const std::string& what) {
  struct Shared {
    absl::Mutex mu;
    std::optional<absl::StatusOr<T>> result ABSL_GUARDED_BY(mu);
  };
  auto shared = std::make_shared<Shared>();
  std::thread([shared, call = std::move(call), what]() mutable {
    std::optional<absl::StatusOr<T>> result;
    try {
      result.emplace(call());
    } catch (const std::exception& error) {
      result.emplace(absl::UnavailableError(absl::StrCat(what, ": ", FirstLine(error.what()))));
    }
    call = nullptr;  // release what it holds before anyone sees the result
    absl::MutexLock lock(&shared->mu);
    shared->result = std::move(result);
  }).detach();

  absl::MutexLock lock(&shared->mu);
  const auto done = [&shared]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared->mu) {
    return shared->result.has_value();
  };
  while (!shared->result.has_value()) {
    const absl::Time now = absl::Now();
    if (cancel != nullptr && cancel->HasBeenNotified()) {
      abandoned->store(true);
      return absl::CancelledError(absl::StrCat(what, ": cancelled"));
    }
    if (now >= deadline) {
      abandoned->store(true);
      return absl::DeadlineExceededError(absl::StrCat(what, ": deadline exceeded"));
    }
    // One cannot wait for a Notification and the result together, so poll the Notification.
    const absl::Time next =
        cancel == nullptr ? deadline : std::min(deadline, now + absl::Milliseconds(20));
    shared->mu.AwaitWithDeadline(absl::Condition(&done), next);
  }
  return *std::move(shared->result);
}

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_RUN_WITH_DEADLINE_H_
