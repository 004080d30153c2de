// The tool calls of a turn, in the format of the model's family (common/tool_calls).
//
//   const TurnCalls found = ParseTurnCalls(tool_calls::Hermes(), {.text = text}, /*is_ended=*/true,
//                                          /*num_calls_before=*/0);
//   if (!found.problems.empty()) Explain(found.problems);
#ifndef TANDEM_TOOLS_TANDEM_ENVIRONMENT_TURN_CALLS_H_
#define TANDEM_TOOLS_TANDEM_ENVIRONMENT_TURN_CALLS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tool_calls/stream_parser.h"

namespace tandem::environment {

struct ToolCall {
  std::string id;  // nine letters and digits, unique in the episode
  std::string name;
  nlohmann::ordered_json arguments;  // an object
};

struct TurnCalls {
  std::vector<ToolCall> calls;  // in order
  // For each malformed call, what was wrong with it, as a sentence for the model.
  std::vector<std::string> problems;
  std::string content;  // the turn without its calls
};

// A turn as text with its special tokens, which some formats have as marks.
struct MarkedText {
  std::string text;
  std::vector<tool_calls::TextRange> special;  // bytes of `text`, in order
};
absl::StatusOr<MarkedText> DecodeMarked(const std::vector<uint32_t>& token_ids,
                                        const tokenizer::Tokenizer& tokenizer);

// Parses a turn. If the model has not ended it, a call that is not complete is neither a call nor a
// problem. `num_calls_before`: calls of earlier turns, from which ids follow.
TurnCalls ParseTurnCalls(const tool_calls::Format& format, const MarkedText& text, bool is_ended,
                         int64_t num_calls_before);

}  // namespace tandem::environment

#endif  // TANDEM_TOOLS_TANDEM_ENVIRONMENT_TURN_CALLS_H_
