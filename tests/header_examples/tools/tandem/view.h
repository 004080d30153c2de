// What the usage examples in tools/tandem/view leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_VIEW_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_VIEW_H_

#include "nlohmann/json.hpp"
#include "tools/tandem/view/open_runs.h"

namespace tandem::view::sample_images_example {
extern nlohmann::json sample;
}  // namespace tandem::view::sample_images_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_VIEW_H_
