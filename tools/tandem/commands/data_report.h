// Shows what a run makes of its data: the form of each file, and a row as the model sees it.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_DATA_REPORT_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_DATA_REPORT_H_

#include <string>

#include "common/tokenizer/tokenizer.h"
#include "tools/tandem/driver/prompt_source.h"

namespace tandem::commands {

// Lines for a terminal: each file with its rows and their form, then the first row, with what is
// trained on, or the answer, apart from what is given. Long texts are shortened. `tokenizer` may be
// null.
std::string DescribeData(const driver::PromptSource& source, const tokenizer::Tokenizer* tokenizer);

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_DATA_REPORT_H_
