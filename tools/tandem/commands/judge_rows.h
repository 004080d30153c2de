// tandem reward --name judge: judges the completions of a file with the configuration's judge.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_JUDGE_ROWS_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_JUDGE_ROWS_H_

#include <string>

#include "absl/status/status.h"
#include "tools/tandem/commands/row_images.h"
#include "tools/tandem/commands/run_options.h"

namespace tandem::commands {

// Prints {"reward": R}, or {"reward": null, "error": "..."} for a failed judgement, for each row
// {"prompt", "completion", "answer", "images"} of the JSONL file `input`. `options`: files and values with
// the section reward.judge. UNAVAILABLE at the end if judgements failed; FAILED_PRECONDITION names the row
// whose images the judge is not shown.
absl::Status JudgeRows(const RunOptions& options, const std::string& input,
                       const ImageFetching& fetching);

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_JUDGE_ROWS_H_
