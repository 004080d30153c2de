#include "common/images/processor/processor_classes.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace tandem::images {
namespace {

struct Row {
  absl::string_view name;
  ProcessorFamily family;
  bool size_is_shortest_edge;
  const char* defaults;
};

constexpr absl::string_view kSuffix = "ImageProcessor";

// Class attributes of transformers 5.24. resample: 1 Lanczos, 2 bilinear, 3 bicubic.
#define TANDEM_CLIP_MEAN_STD                              \
  R"("image_mean": [0.48145466, 0.4578275, 0.40821073],)" \
  R"("image_std": [0.26862954, 0.26130258, 0.27577711])"
#define TANDEM_HALF_MEAN_STD R"("image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5])"

constexpr char kQwen2Vl[] =
    R"({"resample": 3, "size": {"shortest_edge": 3136, "longest_edge": 1003520},
  "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2, )" TANDEM_CLIP_MEAN_STD "}";
constexpr char kClip[] = R"({"resample": 3, "size": {"shortest_edge": 224}, "do_center_crop": true,
  "crop_size": {"height": 224, "width": 224}, "do_pad": false, )" TANDEM_CLIP_MEAN_STD "}";
constexpr char kSiglip[] =
    R"({"resample": 3, "size": {"height": 224, "width": 224}, )" TANDEM_HALF_MEAN_STD "}";
constexpr char kGemma3[] =
    R"({"resample": 2, "size": {"height": 224, "width": 224}, )" TANDEM_HALF_MEAN_STD "}";
constexpr char kLlavaOnevision[] =
    R"({"resample": 3, "size": {"height": 384, "width": 384}, "image_grid_pinpoints": [
  [384, 384], [384, 768], [384, 1152], [384, 1536], [384, 1920], [384, 2304],
  [768, 384], [768, 768], [768, 1152], [768, 1536], [768, 1920], [768, 2304],
  [1152, 384], [1152, 768], [1152, 1152], [1152, 1536], [1152, 1920], [1152, 2304],
  [1536, 384], [1536, 768], [1536, 1152], [1536, 1536], [1536, 1920], [1536, 2304],
  [1920, 384], [1920, 768], [1920, 1152], [1920, 1536], [1920, 1920], [1920, 2304],
  [2304, 384], [2304, 768], [2304, 1152], [2304, 1536], [2304, 1920], [2304, 2304]], )" TANDEM_CLIP_MEAN_STD
    "}";
constexpr char kIdefics3[] =
    R"({"resample": 1, "size": {"longest_edge": 1456}, "do_image_splitting": true,
  "max_image_size": {"longest_edge": 364}, )" TANDEM_HALF_MEAN_STD "}";
constexpr char kGotOcr2[] =
    R"({"resample": 3, "size": {"height": 384, "width": 384}, "crop_to_patches": false,
  "min_patches": 1, "max_patches": 12, )" TANDEM_CLIP_MEAN_STD "}";
constexpr char kPixtral[] = R"({"resample": 3, "size": {"longest_edge": 1024},
  "patch_size": {"height": 16, "width": 16}, )" TANDEM_CLIP_MEAN_STD "}";

#undef TANDEM_CLIP_MEAN_STD
#undef TANDEM_HALF_MEAN_STD

constexpr Row kRows[] = {
    {"Qwen2VL", ProcessorFamily::kQwen2Vl, true, kQwen2Vl},
    {"Qwen2_5_VL", ProcessorFamily::kQwen2Vl, true, kQwen2Vl},  // in folders of early 2025
    {"CLIP", ProcessorFamily::kClip, true, kClip},
    {"Llava", ProcessorFamily::kClip, true, kClip},
    {"Siglip", ProcessorFamily::kGemma3, false, kSiglip},
    {"Gemma3", ProcessorFamily::kGemma3, false, kGemma3},
    {"LlavaOnevision", ProcessorFamily::kLlavaOnevision, true, kLlavaOnevision},
    {"Idefics3", ProcessorFamily::kIdefics3, false, kIdefics3},
    {"SmolVLM", ProcessorFamily::kIdefics3, false, kIdefics3},
    {"GotOcr2", ProcessorFamily::kGotOcr2, false, kGotOcr2},
    {"Pixtral", ProcessorFamily::kPixtral, false, kPixtral},
};

}  // namespace

absl::StatusOr<ProcessorClass> FindProcessorClass(absl::string_view type) {
  absl::string_view name = type;
  absl::ConsumeSuffix(&name, "Fast");
  if (absl::ConsumeSuffix(&name, kSuffix)) {
    for (const Row& row : kRows) {
      if (row.name == name) {
        return ProcessorClass{row.family, row.size_is_shortest_edge,
                              nlohmann::json::parse(row.defaults)};
      }
    }
  }
  if (absl::EndsWith(type, "ImageProcessorPil")) {
    return absl::UnimplementedError(absl::StrCat(
        "'", type,
        "' resizes with Pillow, which gives other pixels; without the suffix Pil it names "
        "transformers' default, which is built here"));
  }
  std::vector<std::string> names;
  for (const Row& row : kRows) names.push_back(absl::StrCat(row.name, kSuffix));
  return absl::UnimplementedError(absl::StrCat("'", type, "' is not built; there are ",
                                               absl::StrJoin(names, ", "),
                                               ", each also with the suffix Fast"));
}

}  // namespace tandem::images
