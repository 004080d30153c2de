// Decides when a rollout rank may be probed.
#ifndef TANDEM_SERVICES_ROLLOUT_SERVICE_ROLLOUT_DIAGNOSTICS_H_
#define TANDEM_SERVICES_ROLLOUT_SERVICE_ROLLOUT_DIAGNOSTICS_H_

#include "common/probe/diagnostics_service.h"
#include "services/rollout/engine/engine.h"
#include "services/rollout/receive/weight_receiver.h"

namespace tandem::rollout {

// Options for rank `rank` of a replica: probes run only while it receives no update and, if it has
// an engine, has no requests. All arguments must outlive the service; `engine` is null on ranks
// that serve no requests.
probe::DiagnosticsServiceImpl::Options RolloutDiagnostics(int rank, const WeightReceiver& receiver,
                                                          const Engine* engine);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SERVICE_ROLLOUT_DIAGNOSTICS_H_
