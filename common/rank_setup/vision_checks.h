// Checks a run's settings against a policy with a vision tower: what images do not go together with.
#ifndef TANDEM_COMMON_RANK_SETUP_VISION_CHECKS_H_
#define TANDEM_COMMON_RANK_SETUP_VISION_CHECKS_H_

#include "absl/status/status.h"
#include "common/model/model_spec.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::setup {

// OK for a policy without a tower, but if actor.vision_lr is set: INVALID_ARGUMENT. With a tower
// UNIMPLEMENTED names the key that does not go together with it: plain attention, a critic; and for a
// tower that is trained, muon.
// INVALID_ARGUMENT: actor.vision_lr without actor.optim.lr, whose schedule it follows, or with a tower
// that trainer.frozen_parameters freezes.
absl::Status CheckVision(const config::v1::RunConfig& config, const model::ModelSpec& spec);

// Whether the run trains the policy's vision tower.
bool TrainsVision(const config::v1::RunConfig& config, const model::ModelSpec& spec);

}  // namespace tandem::setup

#endif  // TANDEM_COMMON_RANK_SETUP_VISION_CHECKS_H_
