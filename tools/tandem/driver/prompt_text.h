// PromptText(): a prompt as a person reads it.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_PROMPT_TEXT_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_PROMPT_TEXT_H_

#include <string>

#include "tools/tandem/driver/completion.h"

namespace tandem::driver {

// A chat's only message as it is; several each below "ROLE:", in order. Other prompts as they are. A
// chat whose messages were not kept (RowNeeds::keeps_chat) is what its template rendered; one that was
// given as token ids is empty.
std::string PromptText(const Prompt& prompt);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_PROMPT_TEXT_H_
