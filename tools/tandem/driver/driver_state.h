// The driver's state in a checkpoint: conversion to and from the proto, and validation.
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

// The group must be complete. `place` is its prompt's among those of the state.
v1::FinishedGroup ToProto(int64_t place, const Group& group);
Group FromProto(const v1::FinishedGroup& group);  // without its prompt

// The groups of the upcoming batches after a step, for a checkpoint.
struct Ahead {
  v1::Generation generation;
  int64_t prompt_position = 0;  // where its prompts begin
};

// DATA_LOSS if the bytes do not parse, OUT_OF_RANGE for an invalid version. `place` names the
// checkpoint in errors.
absl::StatusOr<v1::DriverState> ParseDriverState(const std::string& bytes,
                                                 const std::string& place);

// Properties that must match when a run resumes.
struct RunIdentity {
  std::string command;
  uint64_t seed = 0;
  int64_t num_prompts = 0;
  RunInputs inputs;
  std::set<std::string> allow_changed;  // kinds of inputs that may differ
};

// FAILED_PRECONDITION if the resuming run is not the saved one: another command, seed, input that
// may not differ (the error names each, with both digests), or number of rows, which would make the
// position in the data set point at other prompts. Drops the state's samples of the next step if
// they belong to other data or another tokenizer; appends to `notes` what the user should know.
absl::Status CheckDriverState(const RunIdentity& run, v1::DriverState& state,
                              std::vector<std::string>& notes);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_DRIVER_STATE_H_
