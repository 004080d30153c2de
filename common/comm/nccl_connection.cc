#include "common/comm/nccl_connection.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/comm/nccl_watchdog.h"
#include "common/comm/run_with_deadline.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

constexpr absl::Duration kProgressPause = absl::Microseconds(50);
// How long an abort waits for a call to return: one that polls leaves within kProgressPause. One that
// blocks ends only by the abort.
constexpr absl::Duration kCallGrace = absl::Milliseconds(200);
// A finalized communicator flushes what is in flight; its peers may be gone.
constexpr absl::Duration kMostForFinalize = absl::Seconds(5);
// How long an aborted communicator's kernels are awaited.
constexpr absl::Duration kMostForAbort = absl::Seconds(30);

}  // namespace

// Fields but `tensors` and `end` are set once, before others see the operation.
class NcclConnection::Operation {
 public:
  Operation(std::string what, absl::Time deadline, std::vector<at::Tensor> tensors)
      : what(std::move(what)), deadline(deadline), tensors(std::move(tensors)) {}

  const std::string what;  // for messages
  const absl::Time deadline;
  // Both guarded by the connection's `mu_`. `end` is null until NCCL has taken the operation.
  std::vector<at::Tensor> tensors;
  std::shared_ptr<device::Event> end;
};

std::shared_ptr<NcclConnection> NcclConnection::Create(std::string name, std::string family,
                                                       absl::Duration timeout,
                                                       std::shared_ptr<NcclApi> api,
                                                       NcclCommunicator* comm) {
  std::shared_ptr<NcclConnection> connection(
      new NcclConnection(std::move(name), std::move(family), timeout, std::move(api), comm));
  NcclWatchdog::OfProcess().Add(connection);
  return connection;
}

NcclConnection::NcclConnection(std::string name, std::string family, absl::Duration timeout,
                               std::shared_ptr<NcclApi> api, NcclCommunicator* comm)
    : name_(std::move(name)),
      family_(std::move(family)),
      api_(std::move(api)),
      // High priority: compute waits for collectives, whose kernels should not queue behind it.
      stream_(api_->device().NewStream(device::Priority::kHigh)),
      comm_(comm),
      timeout_(timeout) {}

absl::Status NcclConnection::ErrorOf(const std::string& what, int result) {
  return absl::UnavailableError(absl::StrCat(what, ": ", api_->ErrorText(result, comm_)));
}

int NcclConnection::AwaitProgress(int result) {
  while (result == NcclApi::kInProgress && status().ok()) {
    absl::SleepFor(kProgressPause);
    int state = NcclApi::kSuccess;
    result = api_->CommGetAsyncError(comm_, &state);
    if (result == NcclApi::kSuccess) result = state;
  }
  return result;
}

absl::StatusOr<std::shared_ptr<NcclConnection::Operation>> NcclConnection::Issue(
    std::string what, std::vector<at::Tensor> tensors, Call call) {
  const bool captured = api_->IsCapturing();
  if (!captured) Look().IgnoreError();
  std::shared_ptr<Operation> operation;
  {
    absl::MutexLock lock(&mu_);
    const auto idle = [this]()
                          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !in_call_ || !broken_.ok(); };
    mu_.Await(absl::Condition(&idle));  // the watchdog asks for an error, which does not wait
    if (!broken_.ok()) {
      return absl::FailedPreconditionError(absl::StrCat(
          what, ": the group is broken; create a new one; cause: ", broken_.message()));
    }
    in_call_ = true;
    // Listed before the call, so that the watchdog finds one that never returns.
    operation =
        std::make_shared<Operation>(std::move(what), absl::Now() + timeout_, std::move(tensors));
    if (!captured) under_way_.push_back(operation);
  }
  absl::Status failure;
  std::shared_ptr<device::Event> end;
  try {
    device::Device& device = api_->device();
    const std::shared_ptr<device::Event> before = device.Record("work before a collective");
    const std::shared_ptr<void> turn = device.Use(*stream_);
    if (before != nullptr) device.Wait(*before);
    const int result = AwaitProgress(call(*api_, comm_, *stream_));
    // After a break the communicator may be gone: NCCL is not asked for the error's text.
    failure = status();
    if (failure.ok() && result != NcclApi::kSuccess) failure = ErrorOf(operation->what, result);
    // Only now: a communicator that connects launches the kernel once it has connected.
    if (failure.ok()) end = device.Record(operation->what);
  } catch (const std::exception& error) {
    failure = absl::UnavailableError(absl::StrCat(operation->what, ": ", FirstLine(error.what())));
  }
  {
    absl::MutexLock lock(&mu_);
    in_call_ = false;
    operation->end = std::move(end);
  }
  if (!failure.ok()) return Break(std::move(failure));
  return operation;
}

absl::Status NcclConnection::WatchQueued(std::string what) {
  RETURN_IF_ERROR(Look());
  try {
    std::shared_ptr<device::Event> end = api_->device().Record(what);
    absl::MutexLock lock(&mu_);
    under_way_.push_back(std::make_shared<Operation>(std::move(what), absl::Now() + timeout_,
                                                     std::vector<at::Tensor>()));
    under_way_.back()->end = std::move(end);
    return broken_;
  } catch (const std::exception& error) {
    return Break(absl::UnavailableError(
        absl::StrCat("group ", name_, ": a replay: ", FirstLine(error.what()))));
  }
}

absl::Status NcclConnection::Wait(Operation& operation) {
  std::shared_ptr<device::Event> end;
  {
    absl::MutexLock lock(&mu_);
    RETURN_IF_ERROR(broken_);
    end = operation.end;
  }
  try {
    api_->device().Wait(*end);
  } catch (const std::exception& error) {
    return Break(
        absl::UnavailableError(absl::StrCat(operation.what, ": ", FirstLine(error.what()))));
  }
  // The current stream is ordered after the operation now, and with it whoever gets the memory
  // next.
  std::vector<at::Tensor> released;
  absl::MutexLock lock(&mu_);
  released.swap(operation.tensors);
  return absl::OkStatus();
}

bool NcclConnection::IsCompleted(Operation& operation) {
  if (!Look().ok()) return true;
  absl::MutexLock lock(&mu_);
  return std::find_if(under_way_.begin(), under_way_.end(), [&](const auto& other) {
           return other.get() == &operation;
         }) == under_way_.end();
}

absl::Status NcclConnection::Look() {
  while (true) {
    std::shared_ptr<Operation> first;
    std::shared_ptr<device::Event> end;
    {
      absl::MutexLock lock(&mu_);
      if (!broken_.ok() || under_way_.empty()) return broken_;
      first = under_way_.front();
      end = first->end;
    }
    bool done = false;
    try {
      done = end != nullptr && api_->device().IsDone(*end);
    } catch (const std::exception& error) {
      return Break(
          absl::UnavailableError(absl::StrCat(first->what, ": ", FirstLine(error.what()))));
    }
    if (!done) {
      if (absl::Now() < first->deadline) return absl::OkStatus();
      return Break(absl::DeadlineExceededError(absl::StrCat(
          first->what, end == nullptr ? ": not started by its deadline: a peer did not connect"
                                      : ": not finished by its deadline")));
    }
    std::vector<at::Tensor> released;  // after the lock
    absl::MutexLock lock(&mu_);
    released.swap(first->tensors);
    if (!under_way_.empty() && under_way_.front() == first) under_way_.pop_front();
  }
}

absl::Status NcclConnection::LookAtCommunicator() {
  RETURN_IF_ERROR(Look());
  {
    absl::MutexLock lock(&mu_);
    if (in_call_ || closed_ || !broken_.ok()) return broken_;
    in_call_ = true;
  }
  int state = NcclApi::kSuccess;
  int result = api_->CommGetAsyncError(comm_, &state);
  if (result == NcclApi::kSuccess) result = state;
  absl::Status failure;
  if (result != NcclApi::kSuccess && result != NcclApi::kInProgress) {
    failure = ErrorOf(absl::StrCat("group ", name_), result);
  }
  {
    absl::MutexLock lock(&mu_);
    in_call_ = false;
    if (!failure.ok() && !under_way_.empty()) {
      failure = absl::Status(failure.code(),
                             absl::StrCat(under_way_.front()->what, ": ", failure.message()));
    }
  }
  return failure.ok() ? failure : Break(std::move(failure));
}

absl::Status NcclConnection::Break(absl::Status reason) {
  {
    absl::MutexLock lock(&mu_);
    if (!broken_.ok()) return broken_;
    broken_ = reason;
  }
  NcclWatchdog::OfProcess().BreakFamily(*this, reason);
  return reason;
}

absl::Status NcclConnection::status() const {
  absl::MutexLock lock(&mu_);
  return broken_;
}

void NcclConnection::SetTimeout(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  timeout_ = timeout;
}

bool NcclConnection::ClaimAbort(const absl::Status& reason) {
  absl::MutexLock lock(&mu_);
  if (abort_claimed_ || closed_) return false;
  if (broken_.ok()) broken_ = reason;
  abort_claimed_ = true;
  return true;
}

NcclCommunicator* NcclConnection::AwaitIdle() {
  absl::MutexLock lock(&mu_);
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !in_call_; };
  mu_.AwaitWithTimeout(absl::Condition(&idle), kCallGrace);
  return comm_;
}

bool NcclConnection::HasEnded(const Operation& operation) const {
  std::shared_ptr<device::Event> end;
  {
    absl::MutexLock lock(&mu_);
    end = operation.end;
  }
  try {
    return end == nullptr || api_->device().IsDone(*end);
  } catch (const std::exception&) {
    return true;  // the device has failed: nothing runs
  }
}

void NcclConnection::Aborted() {
  std::deque<std::shared_ptr<Operation>> ended;
  {
    absl::MutexLock lock(&mu_);
    ended = under_way_;
  }
  // Until a kernel has ended it may write the operation's tensors, so their memory stays ours.
  const absl::Time deadline = absl::Now() + kMostForAbort;
  for (const auto& operation : ended) {
    while (!HasEnded(*operation)) {
      if (absl::Now() >= deadline) return;
      absl::SleepFor(kProgressPause);
    }
  }
  absl::MutexLock lock(&mu_);
  under_way_.clear();
}

void NcclConnection::Close() {
  Look().IgnoreError();
  bool busy = false;
  {
    absl::MutexLock lock(&mu_);
    if (closed_ || abort_claimed_) return;
    const auto idle = [this]()
                          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !in_call_ || !broken_.ok(); };
    mu_.Await(absl::Condition(&idle));
    if (!broken_.ok()) return;  // whoever broke it aborts it
    broken_ = absl::CancelledError(absl::StrCat("group ", name_, ": destroyed"));
    busy = !under_way_.empty();
    (busy ? abort_claimed_ : closed_) = true;
  }
  if (busy) {
    NcclWatchdog::OfProcess().Abort({shared_from_this()});
  } else {
    FinalizeAndDestroy();
  }
}

void NcclConnection::FinalizeAndDestroy() {
  const absl::Time deadline = absl::Now() + kMostForFinalize;
  int result = api_->CommFinalize(comm_);
  while (result == NcclApi::kInProgress && absl::Now() < deadline) {
    absl::SleepFor(kProgressPause);
    int state = NcclApi::kSuccess;
    result = api_->CommGetAsyncError(comm_, &state);
    if (result == NcclApi::kSuccess) result = state;
  }
  if (result == NcclApi::kSuccess) {
    api_->CommDestroy(comm_);
  } else {
    api_->CommAbort(comm_);
  }
}

}  // namespace tandem::comm
