// tandem reward --name model: scores the completions of a file with the configuration's reward model.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_MODEL_REWARD_ROWS_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_MODEL_REWARD_ROWS_H_

#include <string>

#include "absl/status/status.h"
#include "tools/tandem/commands/run_options.h"

namespace tandem::commands {

// Prints {"reward": R}, or {"reward": null, "error": "..."} for a score that failed, for each row
// {"prompt", "completion"} or {"ids"} of the JSONL file `input`. `options`: files and values with the
// section reward.model, whose path is served here unless there is an endpoint. UNAVAILABLE at the end if
// scores failed; errors of rows name them.
absl::Status ModelRewardRows(const RunOptions& options, const std::string& input);

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_MODEL_REWARD_ROWS_H_
