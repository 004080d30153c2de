// What the usage examples in tools/tandem/commands leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_COMMANDS_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_COMMANDS_H_

#include "common/io/json_fields.h"

namespace tandem::commands::row_images_example {
extern const io::JsonFields& row;
}  // namespace tandem::commands::row_images_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_COMMANDS_H_
