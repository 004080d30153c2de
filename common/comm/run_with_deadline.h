// RunWithDeadline: calls something that may block for ever and comes back in time all the same. The
// call runs on a thread of its own; where the deadline passes or `cancel` is notified first, the
// thread is left behind with `abandoned` set, and must end by itself soon. It may only touch what
// it shares.
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

// As c10d takes a time: at least one, for none would be to wait for ever.
inline std::chrono::milliseconds ToMilliseconds(absl::Duration d) {
  return std::chrono::milliseconds(std::max<int64_t>(1, absl::ToInt64Milliseconds(d)));
}

// First line of what a library threw: c10's messages carry stack traces after it.
inline std::string FirstLine(const char* what) {
  const std::string text(what);
  return text.substr(0, text.find('\n'));
}

// `what` begins the message of DEADLINE_EXCEEDED, CANCELLED and UNAVAILABLE (an exception).
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
    call = nullptr;  // what it holds goes before anyone hears that it is done
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
    // A Notification cannot be waited for together with the result: look at it now and then.
    const absl::Time next =
        cancel == nullptr ? deadline : std::min(deadline, now + absl::Milliseconds(20));
    shared->mu.AwaitWithDeadline(absl::Condition(&done), next);
  }
  return *std::move(shared->result);
}

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_RUN_WITH_DEADLINE_H_
