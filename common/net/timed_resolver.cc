#include "common/net/timed_resolver.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace tandem::net {
namespace {

constexpr int kMaxLookUps = 32;
constexpr absl::Duration kLookForCancel = absl::Milliseconds(100);

std::atomic<int> num_look_ups{0};

// Shared by the caller, who may leave, and the thread that looks up.
struct LookUp {
  absl::Mutex mu;
  std::optional<absl::StatusOr<std::vector<SocketAddress>>> found ABSL_GUARDED_BY(mu);
};

absl::Status Begin(const HostPort& address, const std::shared_ptr<LookUp>& look_up) {
  if (num_look_ups.fetch_add(1) >= kMaxLookUps) {
    --num_look_ups;
    return absl::ResourceExhaustedError(
        absl::StrCat(kMaxLookUps, " names are being looked up, as many as may be"));
  }
  try {
    std::thread([address, look_up] {
      absl::StatusOr<std::vector<SocketAddress>> found = Resolve(address);
      --num_look_ups;
      absl::MutexLock lock(&look_up->mu);
      look_up->found = std::move(found);
    }).detach();
  } catch (const std::system_error& error) {
    --num_look_ups;
    return absl::ResourceExhaustedError(error.what());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<SocketAddress>> ResolveBefore(const HostPort& address,
                                                         absl::Time deadline,
                                                         const std::function<bool()>& cancelled) {
  if (IsNumber(address)) return Resolve(address);
  std::shared_ptr<LookUp> look_up;
  while (true) {
    if (cancelled != nullptr && cancelled()) {
      return absl::CancelledError("the address is no longer needed");
    }
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("the name ", address.host, " was not resolved in time"));
    }
    if (look_up == nullptr) {
      look_up = std::make_shared<LookUp>();
      if (absl::Status begun = Begin(address, look_up); !begun.ok()) return begun;
    }
    absl::MutexLock lock(&look_up->mu);
    const auto is_found = [&look_up] {
      look_up->mu.AssertReaderHeld();
      return look_up->found.has_value();
    };
    look_up->mu.AwaitWithDeadline(absl::Condition(&is_found),
                                  std::min(deadline, absl::Now() + kLookForCancel));
    if (look_up->found.has_value()) return *std::move(look_up->found);
  }
}

}  // namespace tandem::net
