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
  return {"llava",    "llava-full",     "llava-siglip", "gemma3",
          "internvl", "internvl-norms", "gemma3-long"};
}

// Those whose tiles an image alone and images among others become differ (LLaVA-OneVision).
inline std::vector<std::string> CanvasGoldenCases() {
  return {"llava-onevision", "llava-onevision-shrunk"};
}

// Models whose towers see tiles, between whose placeholders there is text.
inline std::vector<std::string> NamedTileGoldenCases() { return {"idefics3", "smolvlm"}; }

// Models whose towers see tiles, of either kind.
inline std::vector<std::string> AllTileGoldenCases() {
  std::vector<std::string> cases = TileGoldenCases();
  for (const std::string& name : NamedTileGoldenCases()) cases.push_back(name);
  return cases;
}

inline std::vector<std::string> VisionGoldenCases() {
  std::vector<std::string> cases = AnySizeGoldenCases();
  for (const std::string& name : AllTileGoldenCases()) cases.push_back(name);
  for (const std::string& name : CanvasGoldenCases()) cases.push_back(name);
  return cases;
}

// A case as the name of a test.
inline std::string VisionGoldenName(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_VISION_GOLDEN_H_
