// CompletionFormat: OpenAI's API objects of completions and chats.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_COMPLETION_FORMAT_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_COMPLETION_FORMAT_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/tokenizer/tokenizer.h"
#include "services/rollout/openai/answer_format.h"
#include "services/rollout/openai/chat_answer.h"

namespace tandem::rollout::openai {

// All arguments must outlive it.
class CompletionFormat final : public AnswerFormat {
 public:
  // `tokenizer` may be null. `scores`: the prompts' scores if the request echoes them with
  // log-probs; else empty.
  CompletionFormat(const CompletionRequest& request, const tokenizer::Tokenizer* tokenizer,
                   std::string model, std::vector<ScoreResult> scores, int64_t policy_version,
                   int64_t incarnation = 0);

  nlohmann::ordered_json Whole(const std::vector<SampleChunk>& chunks) override;
  std::vector<nlohmann::ordered_json> Events(const SampleChunk& chunk) override;
  nlohmann::ordered_json UsageEvent() const override;

 private:
  struct ChoiceState {
    bool begun = false;
    std::optional<tokenizer::IncrementalDecoder> decoder;
    int64_t offset = 0;                // characters so far
    std::optional<ChatAnswer> answer;  // of chats with tools
  };

  nlohmann::ordered_json Head(const char* object) const;
  // `text` is the choice's "text", "message" or "delta".
  nlohmann::ordered_json Choice(const SampleChunk& chunk, const char* name,
                                nlohmann::ordered_json text, bool first);
  // The state of the chunk's choice, whose answer has the chunk.
  ChoiceState& Add(const SampleChunk& chunk);
  std::vector<nlohmann::ordered_json> ToolEvents(const SampleChunk& chunk, ChoiceState& state);
  nlohmann::ordered_json Wrap(nlohmann::ordered_json choice, bool first) const;
  nlohmann::ordered_json Logprobs(const SampleChunk& chunk, bool echoes, ChoiceState& state);
  nlohmann::ordered_json ChatLogprobs(const SampleChunk& chunk) const;
  std::string Name(int32_t id) const;
  // The text of a completion, which begins with an echoed prompt.
  std::string TextOf(const SampleChunk& chunk, bool first) const;

  const tokenizer::Tokenizer* const tokenizer_;
  const std::string model_;
  const std::vector<ScoreResult> scores_;
  const std::string id_;
  const int64_t created_;
  std::map<int32_t, ChoiceState> choices_;
};

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_COMPLETION_FORMAT_H_
