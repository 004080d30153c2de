// Where the cases of tests/common/model/vision_golden are.
#ifndef TANDEM_TESTS_SUPPORT_VISION_GOLDEN_H_
#define TANDEM_TESTS_SUPPORT_VISION_GOLDEN_H_

#include <cstdlib>
#include <string>

namespace tandem::testing {

// The folder of a case: a model, its images, and what transformers says of them. Without a name, that
// of all cases.
inline std::string VisionGolden(const std::string& name = "") {
  const char* source = std::getenv("TANDEM_SOURCE");
  return std::string(source == nullptr ? "." : source) + "/tests/common/model/vision_golden/" +
         name;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_VISION_GOLDEN_H_
