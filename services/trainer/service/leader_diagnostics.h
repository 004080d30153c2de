// The leader's implementation of DiagnosticsService: its own reports, and those of the other ranks
// while they wait for a command.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_LEADER_DIAGNOSTICS_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_LEADER_DIAGNOSTICS_H_

#include "absl/time/time.h"
#include "common/probe/diagnostics_service.h"
#include "services/trainer/service/command_queue.h"
#include "services/trainer/service/trainer_leader.h"

namespace tandem::trainer {

// Leader and queue outlive the service. `collective_timeout` is the ranks' timeout for one another:
// a probe ends well before it, so that no rank takes another for lost. `on_gpu`: whether the ranks
// compute on GPUs.
probe::DiagnosticsServiceImpl::Options LeaderDiagnostics(TrainerLeader& leader, CommandQueue& queue,
                                                         absl::Duration collective_timeout,
                                                         bool on_gpu);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_LEADER_DIAGNOSTICS_H_
