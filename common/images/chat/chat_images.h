// The images of a chat: which parts of its messages are images, where each comes from, and how its
// placeholder becomes as many tokens as the model sees of it.
//
//   ASSIGN_OR_RETURN(const std::vector<images::ChatImage> found,
//                    images::FindChatImages(messages, /*listed=*/nullptr, "<|image_pad|>"));
//   // found[0].source: "cat.png", found[0].place: "messages[0].content[1]"
//   ASSIGN_OR_RETURN(const std::vector<int32_t> expanded,
//                    images::ExpandPlaceholders(ids, placeholders, found, grids));
#ifndef TANDEM_COMMON_IMAGES_CHAT_CHAT_IMAGES_H_
#define TANDEM_COMMON_IMAGES_CHAT_CHAT_IMAGES_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/images/chat/placeholders.h"

namespace tandem::images {

struct ChatImage {
  std::string source;  // a path or URL, as ReadImageSource() takes it
  std::string place;   // in the row, for messages
};

// Whether a part of a message's content, an object, is an image: its "type" is image or image_url.
bool IsImagePart(const nlohmann::ordered_json& part);

// Returns the images of `messages`, a list, in order. A part that is an image names its source as
// {"image": SOURCE}, as {"image_url": {"url": SOURCE}}, or by transformers' keys url, path and base64.
// `listed`, the row's "images", or null, gives sources in the order of the parts, for those that name
// none; where both do, they must agree. A text that contains `placeholder`, unless that is empty, is a
// part as well, of a listed image. INVALID_ARGUMENT names the part: one without a source, a source
// without a part, a video, audio.
absl::StatusOr<std::vector<ChatImage>> FindChatImages(const nlohmann::ordered_json& messages,
                                                      const nlohmann::ordered_json* listed,
                                                      absl::string_view placeholder);

// Returns `ids` with the tokens of grids[i] in place of the i-th placeholder; `images` and `grids` have
// the same length. INVALID_ARGUMENT if the template wrote another number of placeholders, with the image
// that has none.
absl::StatusOr<std::vector<int32_t>> ExpandPlaceholders(absl::Span<const int32_t> ids,
                                                        const PlaceholderIds& placeholders,
                                                        absl::Span<const ChatImage> images,
                                                        absl::Span<const PlaceholderGrid> grids);

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_CHAT_CHAT_IMAGES_H_
