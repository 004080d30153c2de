// Converts the driver's groups and prompts into the trainer's samples.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_SAMPLE_BUILDER_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_SAMPLE_BUILDER_H_

#include <cstdint>
#include <vector>

#include "tandem/common/v1/sample.pb.h"
#include "tools/tandem/driver/completion.h"

namespace tandem::driver {

// Returns the groups' samples, group after group.
std::vector<common::v1::Sample> ToSamples(int64_t step, const std::vector<Group>& groups,
                                          double temperature);

// Builds the samples of row `index` of the step for supervised training: its sequences, one group.
std::vector<common::v1::Sample> ToSupervisedSamples(int64_t step, int64_t index,
                                                    const Prompt& prompt);

// Builds the two samples of group `index`: the row's chosen and rejected sequences, with rewards 1
// and 0.
std::vector<common::v1::Sample> ToPreferenceSamples(int64_t step, int64_t index,
                                                    const Prompt& prompt);

// Adds the prompt's images, or a group's, to those that a step's samples name.
void AddImages(const Prompt& prompt, StepImages& images);
void AddImages(const Group& group, StepImages& images);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_SAMPLE_BUILDER_H_
