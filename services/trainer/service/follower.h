// The main loop of every rank but the leader: receives a command, executes it, sends the result.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_FOLLOWER_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_FOLLOWER_H_

#include <functional>

#include "absl/status/status.h"
#include "services/trainer/service/control_link.h"
#include "services/trainer/service/rank_command.h"

namespace tandem::trainer {

// Returns OK when the leader sends stop; otherwise the reason why this rank cannot continue: the
// leader is gone, a command's result was fatal, or `must_leave` returned true while the rank was
// idle (it was asked to terminate and the leader's stop is overdue). Reports the reason to the
// leader, as far as it listens.
absl::Status RunFollower(ControlLink& link,
                         const std::function<RankResult(const RankCommand&)>& handler,
                         const std::function<bool()>& must_leave);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_FOLLOWER_H_
