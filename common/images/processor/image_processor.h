// ImageProcessor: from an image to a vision tower's input, as the processor of a model folder does it.
//
//   ASSIGN_OR_RETURN(const images::ImageProcessor processor, images::ImageProcessor::Load(folder));
//   ASSIGN_OR_RETURN(const images::ProcessedImage input, processor.Process(image));
//   // Qwen: input.shape is {patches, 1176}, input.grid {1, 16, 12}
#ifndef TANDEM_COMMON_IMAGES_PROCESSOR_IMAGE_PROCESSOR_H_
#define TANDEM_COMMON_IMAGES_PROCESSOR_IMAGE_PROCESSOR_H_

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/images/chat/placeholders.h"
#include "common/images/image.h"
#include "common/images/processor/image_form.h"
#include "common/images/processor/pixel_values.h"
#include "common/images/processor/preprocessor_config.h"

namespace tandem::images {

struct ProcessedImage {
  // Qwen: patches, [rows, numbers of a patch]. Others: tiles, [tiles, 3, height, width].
  std::vector<int64_t> shape;
  std::vector<float> pixel_values;
  // Qwen: image_grid_thw, {1, rows of patches, patches in a row}. Others: {1, rows, columns} of tiles
  // where the image is cut, else {1, 0, 0}.
  std::array<int64_t, 3> grid = {1, 0, 0};
};

// Immutable: any thread may call any method. pixel_values equal transformers' byte for byte (5.24 with
// its default back end, torchvision 0.26), one image at a time: what a batch adds, padding to its
// largest image, is left to the caller.
class ImageProcessor {
 public:
  // Errors of ReadPreprocessorConfig().
  static absl::StatusOr<ImageProcessor> Load(const std::string& folder);
  explicit ImageProcessor(PreprocessorConfig config)
      : config_(std::move(config)), values_(MakeByteValues(config_)) {}

  // INVALID_ARGUMENT for an image that the processor cannot bring into shape, with its size.
  absl::StatusOr<ProcessedImage> Process(const Image& image,
                                         ImageForm form = ImageForm::kAlone) const;

  // The tokens that stand for an image of this size in a prompt, without making its pixels: of Qwen
  // one for each merge_size x merge_size patches, of Pixtral one for each pixtral_patch. UNIMPLEMENTED
  // for the others.
  absl::StatusOr<PlaceholderGrid> Placeholders(ImageSize image) const;
  // Their number.
  absl::StatusOr<int64_t> NumPlaceholders(ImageSize image) const;

  const PreprocessorConfig& config() const { return config_; }

 private:
  // The size of Qwen's resized image.
  absl::StatusOr<ImageSize> PatchedSize(ImageSize image) const;

  PreprocessorConfig config_;
  ByteValues values_;
};

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_PROCESSOR_IMAGE_PROCESSOR_H_
