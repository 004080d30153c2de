// What the usage examples in common/tokenizer/jinja leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_TOKENIZER_JINJA_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_TOKENIZER_JINJA_H_

#include "nlohmann/json.hpp"

namespace tandem::tokenizer::jinja::template_example {
extern nlohmann::ordered_json context;
}  // namespace tandem::tokenizer::jinja::template_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_TOKENIZER_JINJA_H_
