#include "tools/tandem/environment/calculator.h"

#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status/status_macros.h"
#include "tools/tandem/environment/expression.h"

namespace tandem::environment {
namespace {

using nlohmann::ordered_json;

constexpr char kName[] = "calculator";
constexpr char kArgument[] = "expression";
// Ends a turn outside a chat, where calls are in the form of Hermes.
constexpr char kToolCallEnd[] = "</tool_call>";

// The expression of "... <<EXPRESSION=", or nullopt. A "<<" that is closed or holds another "=" is
// none.
std::optional<absl::string_view> OpenAnnotation(absl::string_view text) {
  if (!absl::ConsumeSuffix(&text, "=")) return std::nullopt;
  const size_t begin = text.rfind("<<");
  if (begin == absl::string_view::npos) return std::nullopt;
  text.remove_prefix(begin + 2);
  if (absl::StrContains(text, ">>") || absl::StrContains(text, '=')) return std::nullopt;
  return text;
}

absl::StatusOr<std::string> Call(const ToolCall& call) {
  if (call.name != kName) {
    return absl::NotFoundError(absl::StrCat("no function \"", call.name, "\"; expected ", kName));
  }
  const auto found = call.arguments.find(kArgument);
  if (found == call.arguments.end() || !(found->is_string() || found->is_number())) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected the argument ", kArgument, ", a text such as \"48/2\""));
  }
  return EvaluateExpression(found->is_string() ? found->get<std::string>() : found->dump());
}

class Calculator : public Environment {
 public:
  explicit Calculator(bool in_chat) : in_chat_(in_chat) {}

  std::vector<std::string> stop() const override {
    if (in_chat_) return {};
    return {"=", kToolCallEnd};
  }

  std::optional<absl::StatusOr<Reply>> Step(const SampledTurn& turn, Done) override {
    Reply out;
    if (!turn.tool_calls.empty()) {
      out.messages = ordered_json::array();
      out.num_tool_calls = static_cast<int64_t>(turn.tool_calls.size());
      for (const ToolCall& call : turn.tool_calls) {
        const absl::StatusOr<std::string> result = Call(call);
        if (!result.ok()) ++out.num_malformed_calls;
        out.messages.push_back(
            {{"role", "tool"},
             {"name", call.name},
             {"content",
              result.ok() ? *result : absl::StrCat("error: ", result.status().message())}});
      }
      return out;
    }
    if (turn.is_ended || turn.is_cut) {
      out.done = true;
    } else if (const auto expression = OpenAnnotation(turn.text); expression.has_value()) {
      const absl::StatusOr<std::string> result = EvaluateExpression(*expression);
      out.num_tool_calls = 1;
      if (!result.ok()) out.num_malformed_calls = 1;
      out.continuation = absl::StrCat(
          result.ok() ? *result : absl::StrCat("error: ", result.status().message()), ">>");
    } else if (absl::EndsWith(turn.text, "=")) {
      out.goes_on = true;  // an equation outside the notation
    } else {
      out.done = true;
    }
    return out;
  }

 private:
  const bool in_chat_;
};

}  // namespace

std::unique_ptr<Environment> MakeCalculator(bool in_chat) {
  return std::make_unique<Calculator>(in_chat);
}

ordered_json CalculatorTools() {
  return ordered_json::array(
      {{{"type", "function"},
        {"function",
         {{"name", kName},
          {"description", "Computes an arithmetic expression of numbers, + - * / and parentheses."},
          {"parameters",
           {{"type", "object"},
            {"properties",
             {{kArgument, {{"type", "string"}, {"description", "The expression, as 48/2"}}}}},
            {"required", ordered_json::array({kArgument})}}}}}}});
}

}  // namespace tandem::environment
