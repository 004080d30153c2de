// BatchImages: the images of a batch, each once however many sequences show it. Files are kept as they
// came; pixels are the rank's cache's, made when a pass needs them.
//
//   auto images = std::make_shared<BatchImages>(pixels, *spec.vision);
//   const int64_t image = images->Add(file);
//   images->GridOf(image);          // decodes, unless the cache has the pixels
//   images->PatchesOf({image});
#ifndef TANDEM_SERVICES_TRAINER_DATA_BATCH_IMAGES_H_
#define TANDEM_SERVICES_TRAINER_DATA_BATCH_IMAGES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/images/processor/image_form.h"
#include "common/model/image_places.h"
#include "common/model/images/pixel_cache.h"
#include "common/model/vision_tower.h"

namespace tandem::trainer {

// The cache of a rank, from which its passes take the pixels, or why it takes no images.
using PixelsOrError = absl::StatusOr<std::unique_ptr<model::PixelCache>>;

// Used by one thread at a time. The arguments of the constructor must outlive it.
class BatchImages {
 public:
  BatchImages(model::PixelCache& pixels, const model::VisionSpec& spec)
      : pixels_(pixels), spec_(spec) {}

  // Returns the image's index: of a file that is there already, the one that it has.
  int64_t Add(std::string file);
  // The index of the file with this SHA-256 digest; nullopt if it was not added.
  std::optional<int64_t> Find(absl::string_view digest) const;
  // The index of this image's file in the form, which other images of the batch may have it in too.
  int64_t InForm(int64_t image, images::ImageForm form);

  const model::VisionSpec& spec() const { return spec_; }

  // Both throw c10::Error with the reason if a file cannot be prepared: whoever receives files has
  // prepared them once (ReceivedImages).
  const model::ImageGrid& GridOf(int64_t image);
  // The images one after another.
  model::ImagePatches PatchesOf(absl::Span<const int64_t> images);

 private:
  struct Image {
    std::shared_ptr<const std::string> file;
    std::string digest;
    std::string key;  // model::ImageKey()
    images::ImageForm form = images::ImageForm::kAlone;
    std::optional<model::ImageGrid> grid;  // once known
  };

  std::shared_ptr<const model::PreparedImage> Prepare(int64_t image);

  model::PixelCache& pixels_;
  const model::VisionSpec& spec_;
  std::vector<Image> images_;
  absl::flat_hash_map<std::string, int64_t> index_of_;  // by key
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_DATA_BATCH_IMAGES_H_
