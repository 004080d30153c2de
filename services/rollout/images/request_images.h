// RequestImages: the images of a request, read and checked before it is queued.
//
//   model::PixelCache pixels(preparer);
//   ASSIGN_OR_RETURN(const auto images,
//                    ReadRequestImages(*spec.vision, pixels, std::move(files), prompt_ids));
#ifndef TANDEM_SERVICES_ROLLOUT_IMAGES_REQUEST_IMAGES_H_
#define TANDEM_SERVICES_ROLLOUT_IMAGES_REQUEST_IMAGES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/images/processor/image_form.h"
#include "common/model/image_places.h"
#include "common/model/images/pixel_cache.h"
#include "services/rollout/kv_cache/block_manager.h"

namespace tandem::rollout {

// A file as it came, shared by what still needs it.
using ImageFile = std::shared_ptr<const std::string>;

// An image and its placeholders, among which there may be tokens of text.
struct RequestImage {
  ImageFile file;
  std::string key;  // of the file in its form, as long as a SHA-256 digest (model::ImageKey())
  images::ImageForm form = images::ImageForm::kAlone;
  int64_t first_token = 0;  // its first placeholder
  int64_t end_token = 0;    // behind its last one
  int64_t first_row = 0;    // the number of its first placeholder among all of the prompt
  int64_t num_rows = 0;     // and placeholders
  int64_t num_patches = 0;
};

// Immutable once made; shared by a request's samples.
struct RequestImages {
  std::vector<RequestImage> images;  // in the order of their runs
  model::ImagePlaces places;

  int64_t file_bytes() const;
  // What tells the prompt's blocks in the prefix cache from those of equal ids with other images.
  std::vector<TokenDigest> TokenDigests() const;
};

// Reads the images of a prompt on the caller's thread; decodes those that `pixels` does not have. Null
// for a prompt without images and placeholders. INVALID_ARGUMENT names "images[i]" or the token: a file
// that cannot be read, an image without a run of as many placeholders as it has rows, a placeholder
// without an image. Ids beyond the vocabulary are the engine's to refuse.
absl::StatusOr<std::shared_ptr<const RequestImages>> ReadRequestImages(
    const model::VisionSpec& spec, model::PixelCache& pixels, std::vector<ImageFile> files,
    absl::Span<const int32_t> prompt_ids);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_IMAGES_REQUEST_IMAGES_H_
