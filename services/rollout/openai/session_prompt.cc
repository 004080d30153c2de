#include "services/rollout/openai/session_prompt.h"

#include <utility>

#include "common/status/status_macros.h"
#include "common/tokenizer/observation_text.h"
#include "services/rollout/openai/chat_messages.h"
#include "services/rollout/sessions/message_digests.h"

namespace tandem::rollout::openai {
namespace {

using nlohmann::ordered_json;

absl::StatusOr<tokenizer::ObservationText> Render(const ordered_json& messages,
                                                  const PastTurn& past,
                                                  const tokenizer::ChatOptions& options,
                                                  const tokenizer::Tokenizer& tokenizer) {
  ordered_json conversation = ordered_json::array();
  ordered_json observation = ordered_json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    (i < past.num_messages ? conversation : observation).push_back(messages[i]);
  }
  return tokenizer::RenderObservation(conversation, observation, past.text, past.end_token, options,
                                      tokenizer);
}

}  // namespace

absl::StatusOr<std::optional<ContinuedChat>> ContinueChat(
    const Session& session, const ordered_json& messages,
    const std::vector<std::string>& image_digests, const tokenizer::ChatOptions& options,
    const tokenizer::Tokenizer& tokenizer) {
  const ImageParts parts = image_digests.empty() ? ImageParts::kRefused : ImageParts::kAllowed;
  ASSIGN_OR_RETURN(TemplateMessages plain, ConvertMessages(messages, ArgumentsAs::kObject, parts));
  std::shared_ptr<const PastTurn> past =
      session.FindChat(MessageDigests(plain.messages, image_digests));
  if (past == nullptr || !options.add_generation_prompt) return std::nullopt;
  absl::StatusOr<tokenizer::ObservationText> rendered =
      Render(plain.messages, *past, options, tokenizer);
  if (!rendered.ok() && plain.has_calls) {
    ASSIGN_OR_RETURN(plain, ConvertMessages(messages, ArgumentsAs::kText, parts));
    rendered = Render(plain.messages, *past, options, tokenizer);
  }
  // An error of the template is one of the whole chat too.
  if (!rendered.ok() || rendered->mismatch.has_value()) return std::nullopt;
  return ContinuedChat{std::move(past), std::move(rendered->text), std::move(rendered->with_all)};
}

}  // namespace tandem::rollout::openai
