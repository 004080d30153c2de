#include "services/rollout/requests/wanted_weights.h"

#include "absl/strings/str_cat.h"
#include "common/rpc/policy_version.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"

namespace tandem::rollout {

absl::Status CheckWantedWeights(int64_t incarnation, const Engine& engine) {
  RETURN_IF_ERROR(rpc::CheckIncarnation("incarnation", incarnation));
  if (incarnation == 0) return absl::OkStatus();
  const EngineInfo info = engine.Info();
  if (info.policy_version < 0 || info.incarnation == incarnation) return absl::OkStatus();
  return rpc::WithReason(
      absl::FailedPreconditionError(absl::StrCat(
          "the request expects weights of trainer incarnation ", incarnation, ", but version ",
          info.policy_version, " of incarnation ", info.incarnation, " is live",
          info.incarnation == 0 ? " (a folder's weights)" : ": another trainer owns the rollout",
          "; publish the weights again, or use another rollout")),
      "FOREIGN_WEIGHTS",
      {{"expected", absl::StrCat(incarnation)}, {"actual", absl::StrCat(info.incarnation)}});
}

}  // namespace tandem::rollout
