// What the usage examples in tools/tandem/gpu_check leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_GPU_CHECK_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_GPU_CHECK_H_

#include <string>

#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace tandem::gpu_check::run_child_example {
extern std::string bin;
extern std::string folder;
extern absl::Time deadline;
void Use(const nlohmann::json& result);
}  // namespace tandem::gpu_check::run_child_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_GPU_CHECK_H_
