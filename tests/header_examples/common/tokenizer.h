// What the usage examples in common/tokenizer leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_TOKENIZER_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_TOKENIZER_H_

namespace tandem::tokenizer::charsmap_example {
extern const std::string blob;
}  // namespace tandem::tokenizer::charsmap_example

namespace tandem::tokenizer::json_node_example {
extern JsonNode root;
}  // namespace tandem::tokenizer::json_node_example

namespace tandem::tokenizer::regex_example {
extern std::string text;
}  // namespace tandem::tokenizer::regex_example

namespace tandem::tokenizer::tokenizer_example {
extern nlohmann::ordered_json messages;
}  // namespace tandem::tokenizer::tokenizer_example

namespace tandem::tokenizer::unicode_example {
extern std::string text;
}  // namespace tandem::tokenizer::unicode_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_TOKENIZER_H_
