// Where the cases of tests/common/model/vision_golden are.
#ifndef TANDEM_TESTS_SUPPORT_VISION_GOLDEN_H_
#define TANDEM_TESTS_SUPPORT_VISION_GOLDEN_H_

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace tandem::testing {

// The folder of a case: a model, its images, and what transformers says of them. Without a name, that
// of all cases.
inline std::string VisionGolden(const std::string& name = "") {
  const char* source = std::getenv("TANDEM_SOURCE");
  return std::string(source == nullptr ? "." : source) + "/tests/common/model/vision_golden/" +
         name;
}

// Models whose towers take images of any size.
inline std::vector<std::string> AnySizeGoldenCases() {
  return {"qwen2-vl", "qwen2-5-vl",  "qwen3-vl", "qwen3-vl-moe",
          "qwen3-5",  "qwen3-5-moe", "mistral3", "mistral3-ministral"};
}

// Models whose towers see tiles of one size.
inline std::vector<std::string> TileGoldenCases() {
  return {"llava", "llava-full", "llava-siglip", "internvl", "internvl-norms"};
}

inline std::vector<std::string> VisionGoldenCases() {
  std::vector<std::string> cases = AnySizeGoldenCases();
  for (const std::string& name : TileGoldenCases()) cases.push_back(name);
  return cases;
}

// A case as the name of a test.
inline std::string VisionGoldenName(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_VISION_GOLDEN_H_
