// BatchImages: the images of a batch, each once however many sequences show it. Files are kept as they
// came; pixels are made when a pass needs them.
//
//   auto images = std::make_shared<BatchImages>(preparer, *spec.vision);
//   const int64_t image = images->Add(file);
//   images->GridOf(image);          // decodes
//   images->PatchesOf({image});     // decodes again, unless the pixels are kept
#ifndef TANDEM_SERVICES_TRAINER_DATA_BATCH_IMAGES_H_
#define TANDEM_SERVICES_TRAINER_DATA_BATCH_IMAGES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/image_places.h"
#include "common/model/images/image_preparer.h"
#include "common/model/vision_tower.h"

namespace tandem::trainer {

// Used by one thread at a time. The arguments of the constructor must outlive it.
class BatchImages {
 public:
  BatchImages(const model::ImagePreparer& preparer, const model::VisionSpec& spec)
      : preparer_(preparer), spec_(spec) {}

  // Returns the image's index: of a file that is there already, the one that it has.
  int64_t Add(std::string file);
  // The index of the file with this SHA-256 digest; nullopt if it was not added.
  std::optional<int64_t> Find(absl::string_view digest) const;

  const model::VisionSpec& spec() const { return spec_; }

  // Both throw c10::Error with the reason if a file cannot be prepared: whoever receives files has
  // prepared them once (ReceivedImages).
  const model::ImageGrid& GridOf(int64_t image);
  // The images one after another.
  model::ImagePatches PatchesOf(absl::Span<const int64_t> images);

  // Pixels of earlier passes that are kept. An image of 224 x 224 takes 1.2 MB.
  static constexpr int64_t kMaxKeptBytes = int64_t{256} << 20;

 private:
  struct Image {
    std::string file;
    std::optional<model::ImageGrid> grid;                // once known
    std::shared_ptr<const model::PreparedImage> pixels;  // null unless kept
  };

  std::shared_ptr<const model::PreparedImage> Prepare(int64_t image);

  const model::ImagePreparer& preparer_;
  const model::VisionSpec& spec_;
  std::vector<Image> images_;
  absl::flat_hash_map<std::string, int64_t> index_of_;  // by digest
  int64_t kept_bytes_ = 0;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_DATA_BATCH_IMAGES_H_
