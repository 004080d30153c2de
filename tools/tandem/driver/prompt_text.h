// PromptText(): a prompt as a person reads it.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_PROMPT_TEXT_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_PROMPT_TEXT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tools/tandem/driver/completion.h"

namespace tandem::driver {

struct PicturedText {
  std::string text;
  std::vector<TextPlace> images;  // what each image of the prompt replaces in it, in order
};

// A chat's only message as it is; several each below "ROLE:", in order. Other prompts as they are. A
// chat whose messages were not kept (RowNeeds::keeps_chat) is what its template rendered; one that was
// given as token ids is empty. Images whose places cannot be found stand at the end.
PicturedText PromptTextAndImages(const Prompt& prompt);

// The same without the images.
std::string PromptText(const Prompt& prompt);

// The places of `placeholder` in `text`, in order.
std::vector<TextPlace> PlacesOf(absl::string_view placeholder, absl::string_view text);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_PROMPT_TEXT_H_
