// What the usage examples in tools/tandem/view leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_VIEW_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_VIEW_H_

#include "tools/tandem/view/open_runs.h"

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_VIEW_H_
