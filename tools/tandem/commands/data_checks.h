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

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_DATA_CHECKS_H_
