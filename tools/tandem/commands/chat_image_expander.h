// ChatImageExpander: gives each image of a chat as many tokens as the model sees of it.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_CHAT_IMAGE_EXPANDER_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_CHAT_IMAGE_EXPANDER_H_

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/images/chat/chat_images.h"
#include "common/images/chat/placeholders.h"
#include "common/images/processor/image_form.h"
#include "common/images/processor/preprocessor_config.h"
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

  // Returns a rendered chat as it becomes tokens.
  std::string TextForTokens(const std::string& text) const {
    return reading_.ok() ? images::TextForTokens(reading_->ids, text) : text;
  }

  // `ids`: the rendered chat. Reads and decodes every image. Errors name the part.
  absl::StatusOr<ExpandedChat> Expand(const std::vector<images::ChatImage>& found,
                                      std::vector<int32_t> ids) const;

 private:
  // How the model sees images.
  struct Reading {
    std::string placeholder;  // what a text has of it
    images::PlaceholderIds ids;
    // The placeholders of an image of a size.
    std::function<absl::StatusOr<images::PlaceholderGrid>(images::ImageSize, images::ImageForm)>
        grid_of;
  };

  static absl::StatusOr<Reading> ReadingOf(const std::string& model_folder,
                                           const tokenizer::Tokenizer& tokenizer);

  const absl::StatusOr<Reading> reading_;  // or what keeps the model from seeing any
  const RowImages& images_;
};

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_CHAT_IMAGE_EXPANDER_H_
