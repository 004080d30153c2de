// ChatImageExpander: gives each image of a chat as many tokens as the model sees of it.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_CHAT_IMAGE_EXPANDER_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_CHAT_IMAGE_EXPANDER_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/images/chat/chat_images.h"
#include "common/images/processor/image_processor.h"
#include "common/tokenizer/tokenizer.h"
#include "tools/tandem/commands/row_images.h"

namespace tandem::commands {

// A rendered chat as the model sees it.
struct ExpandedChat {
  std::vector<int32_t> ids;
  std::vector<ImageFile> images;  // one for each run of placeholders, in order
};

// One thread at a time.
class ChatImageExpander {
 public:
  // A model folder without an image processor, or with one that is not built, does for chats without
  // images. `images` must outlive the expander.
  ChatImageExpander(const std::string& model_folder, const RowImages& images,
                    const tokenizer::Tokenizer& tokenizer);

  // Returns the images of `messages`; `row`, which they are of, may list them as "images". Errors:
  // those of images::FindChatImages(); for a model that sees none, why not.
  absl::StatusOr<std::vector<images::ChatImage>> Find(const nlohmann::ordered_json& messages,
                                                      const nlohmann::ordered_json& row) const;

  // `ids`: the rendered chat. Reads and decodes every image. Errors name the part.
  absl::StatusOr<ExpandedChat> Expand(const std::vector<images::ChatImage>& found,
                                      std::vector<int32_t> ids) const;

 private:
  absl::StatusOr<images::ImageProcessor> processor_;
  const RowImages& images_;
  std::optional<int32_t> placeholder_id_;
};

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_CHAT_IMAGE_EXPANDER_H_
