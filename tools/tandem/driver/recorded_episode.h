// The episode that an agent's recorded calls make.
//
//   ASSIGN_OR_RETURN(Completion completion, EpisodeOfCalls(calls, incarnation));
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_RECORDED_EPISODE_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_RECORDED_EPISODE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/rollout/v1/rollout_service.pb.h"
#include "tools/tandem/driver/completion.h"

namespace tandem::driver {

// A call whose prompt begins with all tokens of a sequence, prompt and sampled ones, extends it: what
// lies between is the environment's. Any other call begins a sequence of its own: an agent that edits
// or shortens its history, asks for several choices, or calls in parallel. Each sampled token is thus
// in one sequence, as a sampled one. The sequences follow one another in the completion, each with a
// segment of kind prompt at its beginning.
//
// Text and finish reason are those of the last call; aborted if a call was. INVALID_ARGUMENT if there
// is no call; INTERNAL for a record that breaks the contract; FAILED_PRECONDITION if weights of another
// trainer than `incarnation` sampled a token (0 checks nothing).
//
// `images`: those that the calls name. A call with other images than a sequence, on the same tokens,
// does not extend it.
absl::StatusOr<Completion> EpisodeOfCalls(const std::vector<rollout::v1::RecordedCall>& calls,
                                          int64_t incarnation, const StepImages& images = {});

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_RECORDED_EPISODE_H_
