#include "services/trainer/service/leader_diagnostics.h"

#include <ATen/Context.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/rpc/proto_duration.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"

namespace tandem::trainer {
namespace {

using diagnostics::v1::CheckReachRequest;
using diagnostics::v1::CheckReachResponse;
using diagnostics::v1::ProbeGroupRequest;
using diagnostics::v1::ProbeResults;

// Time for the queue before a probe and for the way to the ranks.
constexpr absl::Duration kAround = absl::Seconds(5);
// Addresses that a rank asks at once.
constexpr int kAtOnce = 32;

absl::Status Busy(TrainerLeader& leader) {
  const v1::TrainerState state = leader.status().Get().state();
  if (state == v1::TRAINER_STATE_READY) return absl::OkStatus();
  const std::string name =
      absl::AsciiStrToLower(v1::TrainerState_Name(state).substr(sizeof("TRAINER_STATE_") - 1));
  return rpc::WithReason(absl::FailedPreconditionError(
                             absl::StrCat("the trainer is ", name, "; try again when it is idle")),
                         "BUSY", {{"state", name}});
}

// Runs `call` on the collective thread, if its turn comes by `deadline`.
template <typename Result>
absl::StatusOr<Result> RunInTurn(CommandQueue& queue, absl::Time deadline,
                                 std::function<absl::StatusOr<Result>()> call) {
  struct Turn {
    absl::Mutex mu;
    bool begun ABSL_GUARDED_BY(mu) = false;
    bool too_late ABSL_GUARDED_BY(mu) = false;
    absl::StatusOr<Result> result = absl::InternalError("not run");
    absl::Notification done;
  };
  auto turn = std::make_shared<Turn>();
  RETURN_IF_ERROR(queue.Submit([turn, call = std::move(call)] {
    {
      absl::MutexLock lock(&turn->mu);
      if (turn->too_late) return;
      turn->begun = true;
    }
    turn->result = call();
    turn->done.Notify();
  }));
  if (!turn->done.WaitForNotificationWithDeadline(deadline)) {
    absl::MutexLock lock(&turn->mu);
    if (!turn->begun) {
      turn->too_late = true;
      return absl::DeadlineExceededError("the trainer was busy until the deadline");
    }
  }
  turn->done.WaitForNotification();  // a call that has started has deadlines of its own
  return std::move(turn->result);
}

}  // namespace

probe::DiagnosticsServiceImpl::Options LeaderDiagnostics(TrainerLeader& leader, CommandQueue& queue,
                                                         absl::Duration collective_timeout,
                                                         bool on_gpu) {
  probe::DiagnosticsServiceImpl::Options options;
  options.busy = [&leader] { return Busy(leader); };
  options.check_reach = [&leader, &queue, on_gpu](const CheckReachRequest& request) {
    const int others = leader.GetModelInfo().num_ranks() - 1;
    if (others > 0 && Busy(leader).ok()) {
      const int rounds = (request.addresses_size() + kAtOnce - 1) / kAtOnce;
      const absl::Duration time = 2 * rounds * probe::ReachTimeout(request) + kAround;
      auto all = RunInTurn<CheckReachResponse>(
          queue, absl::Now() + time, [&leader, request] { return leader.CheckReach(request); });
      if (all.ok()) return *std::move(all);
    }
    CheckReachResponse own = probe::ReachFromHere(request, 0, on_gpu);
    own.set_num_busy_ranks(others);
    return own;
  };
  options.probe_group = [&leader, &queue, collective_timeout](
                            const ProbeGroupRequest& request, absl::Time deadline,
                            const std::shared_ptr<absl::Notification>&) {
    return RunInTurn<ProbeResults>(
        queue, deadline,
        [&leader, request, deadline, collective_timeout]() -> absl::StatusOr<ProbeResults> {
          RETURN_IF_ERROR(Busy(leader));
          ProbeGroupRequest order = request;
          const int64_t left =
              absl::ToInt64Milliseconds(std::min(deadline - absl::Now(), collective_timeout / 2));
          if (left <= 0) return absl::DeadlineExceededError("the probe timed out");
          *order.mutable_timeout() = rpc::ToProto(absl::Milliseconds(left));
          return leader.ProbeGroup(order);
        });
  };
  return options;
}

}  // namespace tandem::trainer
