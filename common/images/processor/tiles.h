// Cuts an image into the pictures of one size that a vision tower sees, as the processors of the
// families other than Qwen do.
#ifndef TANDEM_COMMON_IMAGES_PROCESSOR_TILES_H_
#define TANDEM_COMMON_IMAGES_PROCESSOR_TILES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "common/images/image.h"
#include "common/images/processor/image_form.h"
#include "common/images/processor/preprocessor_config.h"

namespace tandem::images {

struct Tiles {
  std::vector<Image> images;  // at least one, all of one size
  // How many tiles lie below and beside each other, where the image is cut; a picture of the whole is
  // then the first (LlavaOnevision) or last (Idefics3, GotOcr2) beside them. 0 and 0 where it is not.
  int64_t rows = 0;
  int64_t columns = 0;
};

// The size to which kPixtral resizes an image: multiples of PreprocessorConfig::pixtral_patch.
// INVALID_ARGUMENT if a side vanishes, or it is too large.
absl::StatusOr<ImageSize> PixtralSize(ImageSize image, const PreprocessorConfig& config);

// INVALID_ARGUMENT if what the processor makes of the image is too large. Not for kQwen2Vl.
absl::StatusOr<Tiles> MakeTiles(const Image& image, const PreprocessorConfig& config,
                                ImageForm form = ImageForm::kAlone);

// The canvas of image_grid_pinpoints on which kLlavaOnevision lays an image of this size.
ImageSize CanvasOf(ImageSize image, const PreprocessorConfig& config);

// INVALID_ARGUMENT if the square to which it pads an image of this size among others is too large.
absl::Status CheckSquare(ImageSize image, const PreprocessorConfig& config);

// How many tiles kIdefics3 makes of an image of this size, below and beside each other; 0 x 0 where it is not
// cut. INVALID_ARGUMENT if what it makes is too large.
absl::StatusOr<ImageSize> Idefics3Cut(ImageSize image, const PreprocessorConfig& config);

// The most of them on a side, of any image.
int64_t MaxTilesOnSide(const PreprocessorConfig& config);

// How many MakeTiles() makes of an image of this size, without making them. UNIMPLEMENTED for processors
// other than those of towers that see tiles of one size: CLIP's, SigLIP's, LLaVA-OneVision's of an image alone,
// InternVL's, Idefics3's.
absl::StatusOr<int64_t> NumTiles(ImageSize image, const PreprocessorConfig& config);

// The size of every tile of such a processor. UNIMPLEMENTED likewise.
absl::StatusOr<ImageSize> TileSize(const PreprocessorConfig& config);

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_PROCESSOR_TILES_H_
