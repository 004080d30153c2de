// Reads a prompt of `tandem generate` from a row of its input.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_PROMPT_ROW_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_PROMPT_ROW_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/io/json_fields.h"
#include "common/tokenizer/tokenizer.h"
#include "tools/tandem/driver/completion.h"

namespace tandem::commands {

// The row has ids, prompt (text or messages) or messages. Messages are rendered with the row's
// tools and chat_template_kwargs as in `tandem train`; `variables` is data.chat_template_kwargs.
// `tokenizer` is null if none is at hand, which messages need. INVALID_ARGUMENT names the key.
absl::StatusOr<driver::Prompt> ReadPromptRow(const io::JsonFields& row,
                                             const tokenizer::Tokenizer* tokenizer,
                                             const std::string& variables);

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_PROMPT_ROW_H_
