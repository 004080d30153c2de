// What the usage examples in tools/tandem/view leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_VIEW_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_VIEW_H_

#include "tools/tandem/view/inspector.h"
#include "tools/tandem/view/run_reader.h"

namespace tandem::view::view_server_example {
extern RunReader* reader;
extern Inspector* inspector;
}  // namespace tandem::view::view_server_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_VIEW_H_
