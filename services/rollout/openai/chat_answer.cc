#include "services/rollout/openai/chat_answer.h"

#include <utility>

#include "services/rollout/openai/answer_format.h"

namespace tandem::rollout::openai {

using nlohmann::ordered_json;
using tool_calls::Delta;

ChatAnswer::ChatAnswer(const ToolCalling& calling)
    : parser_(*calling.format, {.schemas = calling.schemas, .max_calls = calling.max_calls}) {
  new_deltas_ = parser_.Push(calling.forced_text);
  tool_calls::AddDeltas(new_deltas_, answer_);
}

void ChatAnswer::Push(const SampleChunk& chunk) {
  std::vector<tool_calls::TextRange> hidden;
  for (const TextSpan& span : chunk.special) {
    hidden.push_back({static_cast<size_t>(span.begin), static_cast<size_t>(span.end)});
  }
  const auto add = [this](std::vector<Delta> deltas) {
    tool_calls::AddDeltas(deltas, answer_);
    for (Delta& delta : deltas) new_deltas_.push_back(std::move(delta));
  };
  add(parser_.Push(chunk.text, hidden));
  if (chunk.finish_reason != FinishReason::kNone) add(parser_.Finish());
}

ordered_json ChatAnswer::Message() const {
  ordered_json message = {
      {"role", "assistant"}, {"content", answer_.content}, {"refusal", nullptr}};
  if (!answer_.reasoning.empty()) message["reasoning_content"] = answer_.reasoning;
  if (answer_.calls.empty()) return message;
  if (answer_.content.empty()) message["content"] = nullptr;
  ordered_json calls = ordered_json::array();
  for (const tool_calls::ToolCall& call : answer_.calls) {
    calls.push_back({{"id", call.id},
                     {"type", "function"},
                     {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  message["tool_calls"] = std::move(calls);
  return message;
}

std::vector<ordered_json> ChatAnswer::TakeDeltas() {
  std::vector<ordered_json> out;
  for (const Delta& delta : std::exchange(new_deltas_, {})) {
    switch (delta.kind) {
      case Delta::Kind::kContent:
        out.push_back({{"content", delta.text}});
        break;
      case Delta::Kind::kReasoning:
        out.push_back({{"reasoning_content", delta.text}});
        break;
      case Delta::Kind::kCall: {
        ordered_json call = {{"index", delta.index},
                             {"id", delta.id},
                             {"type", "function"},
                             {"function", {{"name", delta.name}, {"arguments", ""}}}};
        out.push_back({{"tool_calls", ordered_json::array({std::move(call)})}});
        break;
      }
      case Delta::Kind::kArguments: {
        ordered_json call = {{"index", delta.index}, {"function", {{"arguments", delta.text}}}};
        out.push_back({{"tool_calls", ordered_json::array({std::move(call)})}});
        break;
      }
    }
  }
  return out;
}

ordered_json ChatAnswer::FinishReasonOf(const SampleChunk& chunk) const {
  if (chunk.finish_reason == FinishReason::kStop && parser_.num_calls() > 0) return "tool_calls";
  return NameOf(chunk.finish_reason);
}

ordered_json ChatAnswer::Problems() const {
  ordered_json out = ordered_json::array();
  for (const tool_calls::Problem& problem : parser_.problems()) {
    out.push_back({{"offset", problem.offset}, {"message", problem.what}});
  }
  return out;
}

}  // namespace tandem::rollout::openai
