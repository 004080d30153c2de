// Checks the settings of routers against the policy: losses, replay and correction biases need experts.
#ifndef TANDEM_COMMON_RANK_SETUP_ROUTER_CHECKS_H_
#define TANDEM_COMMON_RANK_SETUP_ROUTER_CHECKS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/model/model_spec.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::setup {

// INVALID_ARGUMENT names the key that has no effect on the model: there are no experts, or no
// correction biases that trainer.frozen_parameters leaves; or layers have different numbers of
// experts, over which no one loss is defined.
absl::Status CheckRouters(const config::v1::RunConfig& config, const model::ModelSpec& spec);

// INVALID_ARGUMENT names a key of routers that has no effect in `command`, which trains on given rows:
// "sft" or "dpo".
absl::Status CheckRoutersOf(absl::string_view command, const config::v1::ActorConfig& actor);

}  // namespace tandem::setup

#endif  // TANDEM_COMMON_RANK_SETUP_ROUTER_CHECKS_H_
