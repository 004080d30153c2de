// What the usage examples in common/text leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_TEXT_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_TEXT_H_

#include <cstdio>

namespace tandem::text::flag_help_example {
extern int port;
}  // namespace tandem::text::flag_help_example

namespace tandem::text::printable_example {
extern absl::Status status;
}  // namespace tandem::text::printable_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_TEXT_H_
