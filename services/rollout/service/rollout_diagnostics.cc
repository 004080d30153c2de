#include "services/rollout/service/rollout_diagnostics.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/status_conversion.h"

namespace tandem::rollout {
namespace {

absl::Status Busy(const std::string& what) {
  return rpc::WithReason(absl::FailedPreconditionError(
                             absl::StrCat("the rollout ", what, "; try again when it is idle")),
                         "BUSY", {{"state", what}});
}

}  // namespace

probe::DiagnosticsServiceImpl::Options RolloutDiagnostics(int rank, const WeightReceiver& receiver,
                                                          const Engine* engine) {
  probe::DiagnosticsServiceImpl::Options options;
  options.rank = rank;
  options.busy = [&receiver, engine] {
    if (const int64_t version = receiver.updating_to(); version >= 0) {
      return Busy(absl::StrCat("receives version ", version));
    }
    if (engine == nullptr) return absl::OkStatus();
    const EngineInfo info = engine->Info();
    const int64_t requests = info.num_running_requests + info.num_waiting_requests;
    return requests == 0 ? absl::OkStatus() : Busy(absl::StrCat("has ", requests, " requests"));
  };
  return options;
}

}  // namespace tandem::rollout
