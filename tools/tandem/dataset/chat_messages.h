// The messages of a data row, as chat templates expect them.
#ifndef TANDEM_TOOLS_TANDEM_DATASET_CHAT_MESSAGES_H_
#define TANDEM_TOOLS_TANDEM_DATASET_CHAT_MESSAGES_H_

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::dataset {

// Whether a value is a non-empty list of objects: messages, not text or token ids.
bool IsMessageList(const nlohmann::json& value);

// What becomes of image parts, {"type": "image"} or {"type": "image_url"}: an error, or they stay, in
// a list with the texts around them.
enum class ImageParts { kRefused, kKept };

// Returns the messages with
//   - content as one text: the text parts of a list are joined, unless an image stands among them;
//   - the arguments of tool calls as objects, which OpenAI's form writes as JSON text;
//   - no null fields, which tables add to messages that lack a column.
// INVALID_ARGUMENT names message and field: a message without a role, or without text and tool
// calls; content that is null, an object, or a part other than text.
absl::StatusOr<nlohmann::ordered_json> ReadMessages(const nlohmann::ordered_json& list,
                                                    absl::string_view key,
                                                    ImageParts images = ImageParts::kRefused);

// Returns the schemas of tools, without null fields: a list, or its JSON as text; null for null, ""
// or an empty list.
absl::StatusOr<nlohmann::ordered_json> ReadTools(const nlohmann::ordered_json& value,
                                                 absl::string_view key);

// Returns variables of the chat template: an object, or its JSON as text; null for null or "".
absl::StatusOr<nlohmann::ordered_json> ReadTemplateVariables(const nlohmann::ordered_json& value,
                                                             absl::string_view key);

}  // namespace tandem::dataset

#endif  // TANDEM_TOOLS_TANDEM_DATASET_CHAT_MESSAGES_H_
