// Tells the user which running services are of another build than this driver.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_BUILD_NOTES_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_BUILD_NOTES_H_

#include <functional>
#include <string>

#include "tools/tandem/driver/rollout_fleet.h"
#include "tools/tandem/driver/trainer_client.h"

namespace tandem::driver {

// Asks the trainer and, unless `fleet` is null or its replicas may change (FleetMembership then notes
// each replica that joins), the rollouts. Skips services that do not respond: the run's own calls
// report those.
void NoteOtherBuilds(TrainerClient& trainer, const RolloutFleet* fleet,
                     const std::function<void(const std::string&)>& note);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_BUILD_NOTES_H_
