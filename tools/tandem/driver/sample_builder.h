// Converts the driver's groups and prompts into the trainer's samples.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_SAMPLE_BUILDER_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_SAMPLE_BUILDER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"
#include "tandem/common/v1/sample.pb.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/driver/completion.h"

namespace tandem::driver {

// Returns the groups' samples, group after group.
std::vector<common::v1::Sample> ToSamples(int64_t step, const std::vector<Group>& groups,
                                          double temperature);

// Builds a sample for supervised training from row `index` of the step: the completion is the
// row's answer and the end of sequence.
absl::StatusOr<common::v1::Sample> ToSupervisedSample(int64_t step, int64_t index,
                                                      const Prompt& prompt,
                                                      const tokenizer::Tokenizer& tokenizer,
                                                      uint32_t eos_token_id);

// Checks that the row has the keys that ToPreferenceSamples() reads. INVALID_ARGUMENT names row
// and key.
absl::Status CheckPreferenceRow(const Prompt& prompt, const config::v1::DataConfig& config);

// Builds the two samples of group `index`: the row's chosen and rejected completions
// (data.chosen_key, data.rejected_key), each with the end of sequence, with rewards 1 and 0.
absl::StatusOr<std::vector<common::v1::Sample>> ToPreferenceSamples(
    int64_t step, int64_t index, const Prompt& prompt, const config::v1::DataConfig& config,
    const tokenizer::Tokenizer& tokenizer, uint32_t eos_token_id);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_SAMPLE_BUILDER_H_
