// ImagePreparer: from the file of an image to the input of a model's vision tower, by the image
// processor of the model's folder. Knows nothing of LibTorch; prompt_images.h makes tensors.
//
//   ASSIGN_OR_RETURN(const ImagePreparer preparer, ImagePreparer::Load(folder, *spec.vision));
//   ASSIGN_OR_RETURN(const PreparedImage image, preparer.Prepare(file, "images[0]"));
//   ASSIGN_OR_RETURN(const ImagePlaces places, PlaceImages(*spec.vision, token_ids, {image.grid}));
#ifndef TANDEM_COMMON_MODEL_IMAGES_IMAGE_PREPARER_H_
#define TANDEM_COMMON_MODEL_IMAGES_IMAGE_PREPARER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/images/chat/placeholders.h"
#include "common/images/image_limits.h"
#include "common/images/processor/image_form.h"
#include "common/images/processor/image_processor.h"
#include "common/model/image_places.h"
#include "common/model/model_spec.h"

namespace tandem::model {

struct PreparedImage {
  ImageGrid grid;
  std::vector<float> pixel_values;  // [grid.num_patches(), VisionSpec::patch_elements()]
  images::PlaceholderGrid placeholders;
};

// Immutable: any thread may call any method.
class ImagePreparer {
 public:
  // Errors of images::ImageProcessor::Load(); INVALID_ARGUMENT, with file and key, if the folder's
  // processor makes other patches than the model's tower takes.
  static absl::StatusOr<ImagePreparer> Load(const std::string& folder, const VisionSpec& spec);

  // The tokens that stand for an image in a prompt. Without a text for the placeholder, which config.json
  // gives by its id, where an image becomes tiles, but of Gemma 3.
  const images::PlaceholderTexts& placeholders() const { return placeholders_; }

  // The placeholders of an image of this size, without making its pixels. INVALID_ARGUMENT for a size
  // that the processor cannot bring into shape.
  absl::StatusOr<images::PlaceholderGrid> Placeholders(
      images::ImageSize image, images::ImageForm form = images::ImageForm::kAlone) const;
  // The patches of an image of this size, likewise.
  absl::StatusOr<ImageGrid> GridOf(images::ImageSize image,
                                   images::ImageForm form = images::ImageForm::kAlone) const;
  // The patches of an image of these placeholders, as far as PlaceImages() reads them.
  ImageGrid PatchesOf(const images::PlaceholderGrid& grid) const;

  // `place` begins every error. Those of images::DecodeImage(): INVALID_ARGUMENT for what is no PNG,
  // JPEG or WebP, is truncated, damaged, animated or beyond `limits`. INVALID_ARGUMENT for an image that
  // the processor cannot bring into shape. Takes the time of one thread, and at most the memory of the
  // decoded and the processed image.
  absl::StatusOr<PreparedImage> Prepare(absl::string_view file, const std::string& place,
                                        images::ImageForm form = images::ImageForm::kAlone,
                                        const images::ImageLimits& limits = {}) const;

 private:
  ImagePreparer(images::ImageProcessor processor, const VisionSpec& spec);

  images::ImageProcessor processor_;
  VisionSpec spec_;
  images::PlaceholderTexts placeholders_;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_IMAGES_IMAGE_PREPARER_H_
