// Reads a prompt of `tandem generate` from a row of its input.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_PROMPT_ROW_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_PROMPT_ROW_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/io/json_fields.h"
#include "common/tokenizer/tokenizer.h"
#include "tools/tandem/commands/chat_image_expander.h"
#include "tools/tandem/commands/row_images.h"
#include "tools/tandem/driver/completion.h"

namespace tandem::commands {

// What a row is read with. All but `images` may be null, and must outlive the call.
struct PromptRowReaders {
  const tokenizer::Tokenizer* tokenizer = nullptr;  // messages need one
  const RowImages& images;
  const ChatImageExpander* chat_images = nullptr;  // messages with images need one
  std::string variables;                           // data.chat_template_kwargs
};

// The row has ids, with their images if it has some, prompt (text or messages) or messages, whose parts
// may be images. Messages are rendered with the row's tools and chat_template_kwargs as in `tandem
// train`; those with images as `tandem tokenize --chat` renders them. INVALID_ARGUMENT names the key.
absl::StatusOr<driver::Prompt> ReadPromptRow(const io::JsonFields& row,
                                             const PromptRowReaders& readers);

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_PROMPT_ROW_H_
