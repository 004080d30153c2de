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
#include "common/images/processor/image_processor.h"
#include "common/tokenizer/tokenizer.h"

namespace tandem::commands {

// Refers to the tokenizer, which must outlive it. One thread at a time.
class ChatImageExpander {
 public:
  // A model folder without an image processor, or with one that is not built, does for chats without
  // images. Paths of images are relative to the folder of `input`, or to the working directory if
  // that is no regular file.
  ChatImageExpander(const std::string& model_folder, const std::string& input,
                    const tokenizer::Tokenizer& tokenizer);

  // `ids`: the row's rendered chat. Reads and decodes every image of "messages" and "images" of the
  // row. Errors name the part.
  absl::StatusOr<std::vector<int32_t>> Expand(const nlohmann::ordered_json& row,
                                              std::vector<int32_t> ids) const;

 private:
  absl::StatusOr<images::ImageProcessor> processor_;
  std::string image_folder_;
  std::optional<int32_t> placeholder_id_;
};

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_CHAT_IMAGE_EXPANDER_H_
