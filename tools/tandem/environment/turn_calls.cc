#include "tools/tandem/environment/turn_calls.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/io/ordered_json.h"
#include "common/status/status_macros.h"

namespace tandem::environment {

absl::StatusOr<MarkedText> DecodeMarked(const std::vector<uint32_t>& token_ids,
                                        const tokenizer::Tokenizer& tokenizer) {
  MarkedText out;
  std::vector<int32_t> run;  // between special tokens: a character may span several of its tokens
  const auto add = [&](const std::vector<int32_t>& ids) -> absl::Status {
    ASSIGN_OR_RETURN(const std::string text, tokenizer.Decode(ids, /*skip_special_tokens=*/false));
    out.text += text;
    return absl::OkStatus();
  };
  for (const uint32_t token : token_ids) {
    const auto id = static_cast<int32_t>(token);
    if (!tokenizer.IsSpecial(id)) {
      run.push_back(id);
      continue;
    }
    RETURN_IF_ERROR(add(std::exchange(run, {})));
    const size_t begin = out.text.size();
    RETURN_IF_ERROR(add({id}));
    out.special.push_back({begin, out.text.size()});
  }
  RETURN_IF_ERROR(add(run));
  return out;
}

TurnCalls ParseTurnCalls(const tool_calls::Format& format, const MarkedText& text, bool is_ended,
                         int64_t num_calls_before) {
  int64_t next = num_calls_before;
  tool_calls::ParserOptions options;
  // From the place in the episode, so that a run repeats its prompts bit for bit.
  options.new_id = [&next] { return absl::StrFormat("call%05d", ++next); };
  tool_calls::StreamParser parser(format, std::move(options));
  tool_calls::Answer answer;
  tool_calls::AddDeltas(parser.Push(text.text, text.special), answer);
  if (is_ended) tool_calls::AddDeltas(parser.Finish(), answer);

  TurnCalls out;
  out.content = std::move(answer.content);
  for (tool_calls::ToolCall& call : answer.calls) {
    absl::StatusOr<nlohmann::ordered_json> arguments = io::ParseOrderedJson(call.arguments);
    if (arguments.ok()) {
      out.calls.push_back({std::move(call.id), std::move(call.name), *std::move(arguments)});
    } else {
      out.problems.push_back(absl::StrCat("malformed tool call: arguments of ", call.name, ": ",
                                          arguments.status().message()));
    }
  }
  for (const tool_calls::Problem& problem : parser.problems()) {
    out.problems.push_back(absl::StrCat("malformed tool call: ", problem.what));
  }
  return out;
}

}  // namespace tandem::environment
