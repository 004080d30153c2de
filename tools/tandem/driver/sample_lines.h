// Writes samples as the lines of run_dir/rollouts and run_dir/evaluations, which `tandem replay`
// reads (recorded_samples.h). tools/tandem/README.md lists the keys.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_SAMPLE_LINES_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_SAMPLE_LINES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/tandem/driver/completion.h"

namespace tandem::driver {

// One line per sample. A sample of one turn has prompt_ids, response_ids, logprobs and
// policy_versions; one of several turns has `segments` in their place. `version_shift`: see
// RunFolder::WriteRollouts().
std::string SampleLines(int64_t step, const std::vector<Group>& groups, double temperature,
                        int64_t version_shift);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_SAMPLE_LINES_H_
