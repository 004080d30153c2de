// When a rollout rank lets itself be probed.
#ifndef TANDEM_SERVICES_ROLLOUT_SERVICE_ROLLOUT_DIAGNOSTICS_H_
#define TANDEM_SERVICES_ROLLOUT_SERVICE_ROLLOUT_DIAGNOSTICS_H_

#include "common/probe/diagnostics_service.h"
#include "services/rollout/engine/engine.h"
#include "services/rollout/receive/weight_receiver.h"

namespace tandem::rollout {

// Of rank `rank` of a replica, while it receives nothing and, where it has an engine, generates
// nothing. All outlive the service; `engine` is null on ranks that serve no requests.
probe::DiagnosticsServiceImpl::Options RolloutDiagnostics(int rank, const WeightReceiver& receiver,
                                                          const Engine* engine);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SERVICE_ROLLOUT_DIAGNOSTICS_H_
