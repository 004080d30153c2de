// Turns a chat's messages into what chat templates read.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_CHAT_MESSAGES_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_CHAT_MESSAGES_H_

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"

namespace tandem::rollout::openai {

// The form in which templates get the arguments of calls.
enum class ArgumentsAs { kObject, kText };

// Messages as templates read them.
struct TemplateMessages {
  nlohmann::ordered_json messages;
  bool has_calls = false;
};

// Whether messages may have parts that are images; templates then write their placeholders.
enum class ImageParts { kRefused, kAllowed };

// Lists of text parts become their text; one with an image stays a list, without the image's source.
// INVALID_ARGUMENT with a BadField.
absl::StatusOr<TemplateMessages> ConvertMessages(const nlohmann::ordered_json& messages,
                                                 ArgumentsAs form,
                                                 ImageParts image_parts = ImageParts::kRefused);

// Renders `messages`, a list of at least one, converted as above; the
// arguments of tool calls, which clients send as text, objects; or text again for a template that
// fails with objects. INVALID_ARGUMENT with a BadField.
absl::StatusOr<std::string> RenderMessages(const nlohmann::ordered_json& messages,
                                           const tokenizer::ChatOptions& options,
                                           const tokenizer::Tokenizer& tokenizer,
                                           ImageParts image_parts = ImageParts::kRefused);

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_CHAT_MESSAGES_H_
