// What the usage examples in common/tool_calls leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_TOOL_CALLS_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_TOOL_CALLS_H_

namespace tandem::tool_calls::registry_example {
extern std::string chat_template;
}  // namespace tandem::tool_calls::registry_example

namespace tandem::tool_calls::stream_parser_example {
extern Schemas schemas;
extern std::string text;
void Send(const Delta& delta);
}  // namespace tandem::tool_calls::stream_parser_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_TOOL_CALLS_H_
