// ChatAnswer: one choice of a chat, whose text is taken apart into content and calls.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_CHAT_ANSWER_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_CHAT_ANSWER_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "common/tool_calls/stream_parser.h"
#include "services/rollout/engine/generation.h"
#include "services/rollout/openai/tool_calling.h"

namespace tandem::rollout::openai {

// Used by one thread. `calling`, which has a format, need not outlive it.
class ChatAnswer {
 public:
  explicit ChatAnswer(const ToolCalling& calling);

  // Adds the text of a chunk.
  void Push(const SampleChunk& chunk);

  // The complete message, once the last chunk is in.
  nlohmann::ordered_json Message() const;
  // OpenAI's deltas of what came since the last call: content, or a call's name, or arguments.
  std::vector<nlohmann::ordered_json> TakeDeltas();

  // "tool_calls" if the answer stopped with calls.
  nlohmann::ordered_json FinishReasonOf(const SampleChunk& chunk) const;
  // Text that looks like a call and is none: [{"offset", "message"}].
  nlohmann::ordered_json Problems() const;

 private:
  tool_calls::StreamParser parser_;
  std::vector<tool_calls::Delta> new_deltas_;
  tool_calls::Answer answer_;
};

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_CHAT_ANSWER_H_
