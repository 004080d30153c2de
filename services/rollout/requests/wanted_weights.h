// Whether a rollout's live weights are those that a request expects.
#ifndef TANDEM_SERVICES_ROLLOUT_REQUESTS_WANTED_WEIGHTS_H_
#define TANDEM_SERVICES_ROLLOUT_REQUESTS_WANTED_WEIGHTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "services/rollout/engine/engine.h"

namespace tandem::rollout {

// FAILED_PRECONDITION (FOREIGN_WEIGHTS) if weights are live that another trainer group than
// `incarnation` published; 0 checks nothing. INVALID_ARGUMENT for an incarnation out of range.
absl::Status CheckWantedWeights(int64_t incarnation, const Engine& engine);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_REQUESTS_WANTED_WEIGHTS_H_
