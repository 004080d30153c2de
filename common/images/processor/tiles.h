// Cuts an image into the pictures of one size that a vision tower sees, as the processors of the
// families other than Qwen do.
#ifndef TANDEM_COMMON_IMAGES_PROCESSOR_TILES_H_
#define TANDEM_COMMON_IMAGES_PROCESSOR_TILES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "common/images/image.h"
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
absl::StatusOr<Tiles> MakeTiles(const Image& image, const PreprocessorConfig& config);

// How many MakeTiles() makes of an image of this size, without making them. UNIMPLEMENTED for processors
// other than those of towers that see tiles of one size: CLIP's, SigLIP's, InternVL's.
absl::StatusOr<int64_t> NumTiles(ImageSize image, const PreprocessorConfig& config);

// The size of every tile of such a processor. UNIMPLEMENTED likewise.
absl::StatusOr<ImageSize> TileSize(const PreprocessorConfig& config);

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_PROCESSOR_TILES_H_
