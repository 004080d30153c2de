// Checks of a run's data rows against its model and its reward, before anything starts.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_DATA_CHECKS_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_DATA_CHECKS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/tandem/commands/run_checks.h"

namespace tandem::commands {

// Adds a sentence for rows that are allowed and probably not meant: empty text, and answers that the
// reward's pattern cannot match. INVALID_ARGUMENT, with file and row, for tokens that the model does
// not have and for given sequences that are longer than its positions; and if all rows are empty.
absl::Status CheckRows(const CheckedRun& run, std::vector<std::string>& warnings);

// UNIMPLEMENTED, with file and row, for a prompt with images in a run that has something which sees
// none: a judge without judge.images, a reward model, a teacher without a vision tower like the policy's.
// `samples`: completions of the prompts are sampled.
absl::Status CheckImages(const char* key, const driver::PromptSource& source,
                         const config::v1::RunConfig& config, bool samples);

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_DATA_CHECKS_H_
