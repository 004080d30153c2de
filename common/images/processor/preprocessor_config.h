// PreprocessorConfig: what preprocessor_config.json, or the entry "image_processor" of
// processor_config.json, says of a model folder's images, with the defaults of the class that it names.
//
//   ASSIGN_OR_RETURN(const images::PreprocessorConfig config, images::ReadPreprocessorConfig(folder));
//   if (config.family == images::ProcessorFamily::kQwen2Vl) ...
#ifndef TANDEM_COMMON_IMAGES_PROCESSOR_PREPROCESSOR_CONFIG_H_
#define TANDEM_COMMON_IMAGES_PROCESSOR_PREPROCESSOR_CONFIG_H_

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/images/chat/placeholders.h"
#include "common/images/resize.h"

namespace tandem::images {

// Families whose classes do the same. Names are those of transformers' image processors.
enum class ProcessorFamily {
  kQwen2Vl,         // Qwen2VL: Qwen2-VL, Qwen2.5-VL, Qwen3-VL
  kClip,            // CLIP, Llava
  kGemma3,          // Gemma3, Siglip
  kLlavaOnevision,  // LlavaOnevision
  kIdefics3,        // Idefics3, SmolVLM
  kGotOcr2,         // GotOcr2: InternVL
  kPixtral,         // Pixtral: Mistral3
};

// Of what a processor makes of one image, before it is cut: several times what published ones make.
inline constexpr int64_t kMaxProcessedPixels = int64_t{1} << 26;
// Tiles that an image is cut into, beside one that shows the whole.
inline constexpr int64_t kMaxTilesOfImage = 4096;

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;

  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

struct PreprocessorConfig {
  std::string place;  // of the file, for messages
  std::string type;   // the class's name, as the file has it
  ProcessorFamily family = ProcessorFamily::kQwen2Vl;

  bool do_resize = true;
  Filter filter = Filter::kBicubic;  // "resample"
  // "size" has one of these: both sides, the shorter one, the longer one; of kQwen2Vl numbers of
  // pixels, the least (also "min_pixels") and the most ("max_pixels").
  std::optional<ImageSize> size;
  std::optional<int64_t> shortest_edge;
  std::optional<int64_t> longest_edge;
  std::optional<ImageSize> crop_size;  // set where do_center_crop is

  bool do_rescale = true;
  double rescale_factor = 0;
  bool do_normalize = true;
  std::array<double, 3> image_mean = {};
  std::array<double, 3> image_std = {};

  // kQwen2Vl.
  int64_t patch_size = 0;
  int64_t temporal_patch_size = 0;
  int64_t merge_size = 0;
  // kClip: pads to a square before resizing.
  bool do_pad = false;
  // kLlavaOnevision; the last two are of LlavaOnevisionProcessor in processor_config.json.
  std::vector<ImageSize> image_grid_pinpoints;
  std::optional<std::string> vision_aspect_ratio;
  std::optional<int64_t> num_image_tokens;
  // kIdefics3.
  bool do_image_splitting = false;
  int64_t max_image_edge = 0;
  int64_t image_seq_len = 0;  // of a tile, in processor_config.json; 0: it does not say
  // kGotOcr2.
  bool crop_to_patches = false;
  int64_t min_patches = 0;
  int64_t max_patches = 0;
  // kPixtral: of the patches that become one placeholder.
  ImageSize pixtral_patch;

  PlaceholderTexts placeholders;
};

// Reads the folder's files; transformers' order: the entry "image_processor" of processor_config.json,
// then preprocessor_config.json. NOT_FOUND if the folder has neither, INVALID_ARGUMENT for a value
// that its class cannot use, UNIMPLEMENTED for a class or a combination that is not built here; each
// with file and key.
absl::StatusOr<PreprocessorConfig> ReadPreprocessorConfig(const std::string& folder);

// `object`: what either file has for the image processor. `processor`: processor_config.json, or an
// empty object; of the classes that it names, InternVLProcessor and PixtralProcessor override values.
absl::StatusOr<PreprocessorConfig> ParsePreprocessorConfig(const nlohmann::json& object,
                                                           const nlohmann::json& processor,
                                                           const std::string& place);

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_PROCESSOR_PREPROCESSOR_CONFIG_H_
