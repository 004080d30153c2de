// An EnvironmentService as the environment of an episode.
#ifndef TANDEM_TOOLS_TANDEM_ENVIRONMENT_SERVICE_ENVIRONMENT_H_
#define TANDEM_TOOLS_TANDEM_ENVIRONMENT_SERVICE_ENVIRONMENT_H_

#include <memory>

#include "absl/time/time.h"
#include "tandem/environment/v1/environment_service.pb.h"
#include "tools/tandem/environment/environment.h"
#include "tools/tandem/environment/environment_client.h"

namespace tandem::environment {

// Begins an episode with `reset`, whose past it fills in, before its first turn. A turn that a broken
// stream or RETRY costs is sent again, at most three times within `timeout`. Errors of Step():
// MayPlayAgain() after that, or for RESTART; DropEpisode() for DROP; without a mark for FATAL, for
// an answer that breaks the contract, and for codes that concern the whole service.
std::unique_ptr<Environment> MakeServiceEnvironment(std::shared_ptr<EnvironmentClient> client,
                                                    v1::Reset reset, absl::Duration timeout);

}  // namespace tandem::environment

#endif  // TANDEM_TOOLS_TANDEM_ENVIRONMENT_SERVICE_ENVIRONMENT_H_
