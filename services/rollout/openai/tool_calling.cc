#include "services/rollout/openai/tool_calling.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/tool_calls/call_object.h"
#include "common/tool_calls/registry.h"

namespace tandem::rollout::openai {
namespace {

using nlohmann::ordered_json;

// {"type": "function", "function": {"name": ...}}, in `tools` and in `tool_choice`.
absl::StatusOr<const ordered_json*> FunctionOf(const ordered_json& object,
                                               const std::string& field) {
  const char kExpected[] = R"(expected {"type": "function", "function": {"name": ...}}, found )";
  const bool is_function = object.is_object() &&
                           object.value("type", ordered_json()) == "function" &&
                           object.contains("function") && object["function"].is_object();
  if (!is_function) return rpc::InvalidField(field, kExpected + DescribeValue(object));
  const ordered_json& function = object["function"];
  const auto name = function.find("name");
  if (name == function.end() || !name->is_string()) {
    return rpc::InvalidField(field + ".function.name", "expected a string");
  }
  const absl::Status valid = tool_calls::CheckName(name->get_ref<const std::string&>());
  if (!valid.ok()) return rpc::InvalidField(field + ".function.name", valid.message());
  return &function;
}

absl::StatusOr<tool_calls::Schemas> ReadSchemas(const ordered_json& tools) {
  tool_calls::Schemas schemas;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string field = absl::StrCat("tools[", i, "]");
    ASSIGN_OR_RETURN(const ordered_json* function, FunctionOf(tools[i], field));
    const ordered_json parameters = function->value("parameters", ordered_json());
    if (!parameters.is_null() && !parameters.is_object()) {
      return rpc::InvalidField(field + ".function.parameters",
                               "expected a schema, found " + DescribeValue(parameters));
    }
    schemas[(*function)["name"].get<std::string>()] = parameters;
  }
  return schemas;
}

// Forces a call of `function`, or of any if that is empty.
absl::Status ForceCall(const std::string& function, const tool_calls::Format* format,
                       ToolCalling& out) {
  if (format == nullptr) {
    return rpc::InvalidField(
        "tool_choice",
        "a call cannot be forced: the model's chat template has no known format of calls; use "
        "\"auto\", or start tandem-rollout with --tool-call-parser");
  }
  if (format->forced_text == nullptr) {
    return rpc::InvalidField(
        "tool_choice", absl::StrCat("a call cannot be forced in the model's format of calls, ",
                                    format->name, "; use \"auto\""));
  }
  out.forced_text = format->forced_text(function);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ToolCalling> ReadToolCalling(RequestFields& fields, const tool_calls::Format* format,
                                            ordered_json& tools) {
  ToolCalling out;
  bool parallel = true;
  RETURN_IF_ERROR(fields.Read("parallel_tool_calls", parallel));
  if (!parallel) out.max_calls = 1;
  const ordered_json* choice = fields.Find("tool_choice");
  const ordered_json* given = fields.Find("tools");
  if (given != nullptr && !given->is_array()) return fields.Error("tools", "a list of functions");
  const bool has_tools = given != nullptr && !given->empty();
  if (choice != nullptr && !has_tools && *choice != "auto" && *choice != "none") {
    return fields.Error("tool_choice", "\"auto\" or \"none\" without tools");
  }
  if (!has_tools) return out;
  ASSIGN_OR_RETURN(out.schemas, ReadSchemas(*given));
  tools = *given;
  if (choice != nullptr && *choice == "none") return out;
  out.format = format;
  if (choice == nullptr || *choice == "auto") return out;
  if (*choice == "required") {
    RETURN_IF_ERROR(ForceCall("", format, out));
    return out;
  }
  if (!choice->is_object()) {
    return fields.Error("tool_choice", "\"auto\", \"none\", \"required\" or a function of tools");
  }
  ASSIGN_OR_RETURN(const ordered_json* function, FunctionOf(*choice, "tool_choice"));
  const std::string name = (*function)["name"].get<std::string>();
  if (!out.schemas.contains(name)) {
    return rpc::InvalidField("tool_choice",
                             absl::StrCat("expected a function of tools, found \"", name, "\""));
  }
  RETURN_IF_ERROR(ForceCall(name, format, out));
  out.max_calls = 1;
  return out;
}

absl::StatusOr<const tool_calls::Format*> ChooseFormat(absl::string_view parser,
                                                       const tokenizer::Tokenizer* tokenizer) {
  if (parser == "none") return nullptr;
  if (parser != "auto") return tool_calls::FindFormat(parser);
  const std::string* text =
      tokenizer == nullptr ? nullptr : tokenizer->chat_template(/*with_tools=*/true);
  return text == nullptr ? nullptr : tool_calls::DetectFormat(*text);
}

}  // namespace tandem::rollout::openai
