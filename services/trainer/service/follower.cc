#include "services/trainer/service/follower.h"

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::trainer {
namespace {

absl::Status LeaderLost(const absl::Status& status) {
  return absl::UnavailableError(absl::StrCat("the leader, rank 0, was lost: ", status.message()));
}

}  // namespace

absl::Status RunFollower(ControlLink& link,
                         const std::function<RankResult(const RankCommand&)>& handler,
                         const std::function<bool()>& must_leave) {
  while (true) {
    const absl::StatusOr<RankCommand> command = link.ReceiveCommand();
    if (!command.ok()) return LeaderLost(command.status());
    if (command->opcode == Opcode::kStop) return absl::OkStatus();
    RankResult result;
    if (command->opcode == Opcode::kPing) {
      if (must_leave()) {
        result.status = absl::AbortedError("the rank was told to stop, but the leader was not");
        result.fatal = true;
      }
    } else {
      result = handler(*command);
    }
    const absl::Status sent = link.SendResult(result);
    if (result.fatal) return result.status;
    if (!sent.ok()) return LeaderLost(sent);
  }
}

}  // namespace tandem::trainer
