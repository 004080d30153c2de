// Reads recorded samples (the folder run_dir/rollouts, one of its files, or a file in the same
// format) as steps to train on.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_RECORDED_SAMPLES_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_RECORDED_SAMPLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/routed_experts.h"
#include "tandem/common/v1/sample.pb.h"
#include "tools/tandem/driver/prompt_source.h"

namespace tandem::driver {

struct Recording {
  std::vector<std::vector<common::v1::Sample>> steps;
  StepImages images;  // of all steps
  DataFile file;
};

// Reads the files of a folder in the order of their step numbers, and samples in the order of their
// lines. Consecutive lines with one `step` form a step, however many groups it has; without `step`,
// `groups_per_step` groups do. Within a step, consecutive lines with one `group` and ascending
// `index` form a group. A line's `images`, each {"path", "sha256"}, belong to its prompt, those of a
// later segment to the segment; a path is relative to the line's file, and left out where an earlier
// line has it.
//
// With `routed`, the samples have the experts that the lines recorded, which they must have for sampled
// tokens; without, experts are not read. INVALID_ARGUMENT names file, line and key, or a file without
// samples.
absl::StatusOr<Recording> ReadRecording(const std::string& path, int64_t groups_per_step,
                                        const model::RoutedLayout* routed = nullptr);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_RECORDED_SAMPLES_H_
