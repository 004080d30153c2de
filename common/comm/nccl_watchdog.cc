#include "common/comm/nccl_watchdog.h"

#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace tandem::comm {
namespace {

// Deadlines are seconds; a look at an idle connection costs about a microsecond.
constexpr absl::Duration kPeriod = absl::Milliseconds(20);
// Which a process that exits waits for aborts. NCCL's take milliseconds.
constexpr absl::Duration kMostAtExit = absl::Seconds(10);

void AbortTogether(const std::vector<std::shared_ptr<NcclConnection>>& connections) {
  std::vector<NcclCommunicator*> communicators;
  for (const auto& connection : connections) communicators.push_back(connection->AwaitIdle());
  // One group: NCCL tells the kernels of all communicators to end before it waits for any.
  NcclApi& api = connections.front()->api();
  api.GroupStart();
  for (size_t i = 0; i < connections.size(); ++i) {
    connections[i]->api().CommAbort(communicators[i]);
  }
  api.GroupEnd();
  for (const auto& connection : connections) connection->Aborted();
}

}  // namespace

NcclWatchdog& NcclWatchdog::OfProcess() {
  // Never destroyed: its thread looks at it until the process ends.
  static NcclWatchdog& watchdog = *new NcclWatchdog();
  return watchdog;
}

NcclWatchdog::NcclWatchdog() {
  std::thread([this] { Run(); }).detach();
}

void NcclWatchdog::Add(std::weak_ptr<NcclConnection> connection) {
  absl::MutexLock lock(&mu_);
  connections_.push_back(std::move(connection));
}

std::vector<std::shared_ptr<NcclConnection>> NcclWatchdog::Connections() {
  std::vector<std::shared_ptr<NcclConnection>> alive;
  absl::MutexLock lock(&mu_);
  for (auto it = connections_.begin(); it != connections_.end();) {
    if (auto connection = it->lock()) {
      alive.push_back(std::move(connection));
      ++it;
    } else {
      it = connections_.erase(it);
    }
  }
  return alive;
}

void NcclWatchdog::BreakFamily(NcclConnection& origin, const absl::Status& reason) {
  std::vector<std::shared_ptr<NcclConnection>> claimed;
  const absl::Status others = absl::AbortedError(
      absl::StrCat("aborted with group ", origin.name(), ": ", reason.message()));
  for (auto& connection : Connections()) {
    if (connection->family() != origin.family()) continue;
    if (connection->ClaimAbort(connection.get() == &origin ? reason : others)) {
      claimed.push_back(std::move(connection));
    }
  }
  if (!claimed.empty()) Abort(std::move(claimed));
}

void NcclWatchdog::Abort(std::vector<std::shared_ptr<NcclConnection>> claimed) {
  // From here on, so that it comes before what the CUDA runtime does at exit.
  static const int at_exit = std::atexit([] { OfProcess().AwaitAborts(kMostAtExit); });
  static_cast<void>(at_exit);
  {
    absl::MutexLock lock(&mu_);
    ++aborts_;
  }
  std::thread([this, claimed = std::move(claimed)]() mutable {
    AbortTogether(claimed);
    claimed.clear();
    absl::MutexLock lock(&mu_);
    --aborts_;
  }).detach();
}

bool NcclWatchdog::AwaitAborts(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return aborts_ == 0; };
  return mu_.AwaitWithTimeout(absl::Condition(&none), timeout);
}

void NcclWatchdog::Run() {
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      const auto any = [this]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !connections_.empty(); };
      mu_.Await(absl::Condition(&any));
    }
    for (const auto& connection : Connections()) {
      connection->LookAtCommunicator().IgnoreError();
    }
    absl::SleepFor(kPeriod);
  }
}

}  // namespace tandem::comm
