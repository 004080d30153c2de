// Reads recorded samples (run_dir/rollouts/N.jsonl, or a file in the same format) as steps to train
// on.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_RECORDED_SAMPLES_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_RECORDED_SAMPLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/common/v1/sample.pb.h"
#include "tools/tandem/driver/prompt_source.h"

namespace tandem::driver {

struct Recording {
  std::vector<std::vector<common::v1::Sample>> steps;
  DataFile file;
};

// Reads steps of `groups_per_step` groups; consecutive samples with one group name form a group.
// INVALID_ARGUMENT names file, line and key, or a file without samples.
absl::StatusOr<Recording> ReadRecording(const std::string& path, int64_t groups_per_step);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_RECORDED_SAMPLES_H_
