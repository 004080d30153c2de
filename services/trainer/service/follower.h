// The life of a rank that is not the leader: wait for a command, run it, answer.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_FOLLOWER_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_FOLLOWER_H_

#include <functional>

#include "absl/status/status.h"
#include "services/trainer/service/control_link.h"
#include "services/trainer/service/rank_command.h"

namespace tandem::trainer {

// Returns OK when the leader says stop; otherwise why this rank cannot go on: the leader is gone, a
// command's result was fatal, or `must_leave` answers true while the rank is idle (it was told to
// end and the leader has not said stop for too long). The leader has been told, as far as it
// listens.
absl::Status RunFollower(ControlLink& link,
                         const std::function<RankResult(const RankCommand&)>& handler,
                         const std::function<bool()>& must_leave);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_FOLLOWER_H_
