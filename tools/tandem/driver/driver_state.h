// The driver's state as it is stored with a checkpoint: what it holds, to and from the proto.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_DRIVER_STATE_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_DRIVER_STATE_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tandem/driver/v1/driver_state.pb.h"
#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/prompt_source.h"
#include "tools/tandem/driver/run_inputs.h"

namespace tandem::driver {

v1::Completion ToProto(const Completion& completion);  // without its reward
Completion FromProto(const v1::Completion& completion);

// A group that is whole; the prompt's place is set.
v1::FinishedGroup ToProto(const Prompt& prompt, const Group& group);
Group FromProto(const v1::FinishedGroup& group);  // without its prompt

// DATA_LOSS where the bytes are none, OUT_OF_RANGE for a version that is none. `place` names the
// checkpoint, for the error.
absl::StatusOr<v1::DriverState> ParseDriverState(const std::string& bytes,
                                                 const std::string& place);

// What must be the same where a run goes on.
struct RunIdentity {
  std::string command;
  uint64_t seed = 0;
  int64_t num_prompts = 0;
  RunInputs inputs;
  std::set<std::string> allow_changed;  // kinds of inputs that may differ
};

// FAILED_PRECONDITION where the run that goes on is not the one that was saved: another command,
// seed, input that is not allowed to differ (each is named, with both digests), or number of rows,
// by which the position in the data set would mean other prompts. Samples of the next step that the
// state has are dropped where they belong to other data or another tokenizer; `notes` gets what the
// user should know.
absl::Status CheckDriverState(const RunIdentity& run, v1::DriverState& state,
                              std::vector<std::string>& notes);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_DRIVER_STATE_H_
