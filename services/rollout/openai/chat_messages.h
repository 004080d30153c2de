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

// Lists of text parts become their text. INVALID_ARGUMENT with a BadField.
absl::StatusOr<TemplateMessages> ConvertMessages(const nlohmann::ordered_json& messages,
                                                 ArgumentsAs form);

// Renders `messages`, a list of at least one. Lists of text parts become their text, and the
// arguments of tool calls, which clients send as text, objects; or text again for a template that
// fails with objects. INVALID_ARGUMENT with a BadField.
absl::StatusOr<std::string> RenderMessages(const nlohmann::ordered_json& messages,
                                           const tokenizer::ChatOptions& options,
                                           const tokenizer::Tokenizer& tokenizer);

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_CHAT_MESSAGES_H_
