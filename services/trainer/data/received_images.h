// ReceivedImages: the images of a call while they arrive, and whether its samples show them where they
// say. What passes is prepared and placed without an error later, on any rank.
//
//   ReceivedImages images(pixels, spec);
//   RETURN_IF_ERROR(images.Add(image));
//   RETURN_IF_ERROR(images.Check(sample, "samples[0]"));
//   RETURN_IF_ERROR(images.CheckAllShown());
#ifndef TANDEM_SERVICES_TRAINER_DATA_RECEIVED_IMAGES_H_
#define TANDEM_SERVICES_TRAINER_DATA_RECEIVED_IMAGES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/model_spec.h"
#include "services/trainer/data/batch_images.h"
#include "tandem/common/v1/media.pb.h"
#include "tandem/common/v1/sample.pb.h"
#include "tandem/trainer/v1/trainer_service.pb.h"

namespace tandem::trainer {

// Used by one thread at a time.
class ReceivedImages {
 public:
  // Both outlive the object. `pixels`: an error is that of the first image; `spec`: without a tower
  // every image is refused.
  ReceivedImages(const PixelsOrError& pixels, const model::ModelSpec& spec)
      : pixels_(pixels), spec_(spec) {}

  // INVALID_ARGUMENT: no picture, damaged, the same file again, or a model without a tower. A model that
  // sees an image otherwise among others leaves pictures to Check(), which names them likewise.
  // RESOURCE_EXHAUSTED beyond kMaxImages or kMaxBytes. Decodes, unless the cache has the pixels: takes
  // milliseconds to a second.
  absl::Status Add(common::v1::Image image);

  // INVALID_ARGUMENT names the segment: a digest of another length or of no image that came before,
  // images of a sampled segment, and placeholders that do not fit the images.
  absl::Status Check(const common::v1::Sample& sample, absl::string_view place);

  // INVALID_ARGUMENT names the first image that no sample shows.
  absl::Status CheckAllShown() const;

  std::vector<common::v1::Image> Take() && { return std::move(images_); }

  static constexpr int64_t kMaxImages = int64_t{1} << 16;
  // The ranks get a step's images in one message below 2 GiB.
  static constexpr int64_t kMaxBytes = int64_t{1} << 30;

 private:
  struct Known {
    size_t index = 0;
    model::ImageGrid grid;
    bool is_shown = false;
  };

  const PixelsOrError& pixels_;
  const model::ModelSpec& spec_;
  std::vector<common::v1::Image> images_;
  absl::flat_hash_map<std::string, Known> known_;  // by digest
  int64_t num_bytes_ = 0;
};

// INVALID_ARGUMENT names the sequence's image or token: what ReceivedImages refuses, in the images of
// a ComputeLogProbs request.
absl::Status CheckImages(const trainer::v1::ComputeLogProbsRequest::Sequence& sequence,
                         absl::string_view place, const PixelsOrError& pixels,
                         const model::ModelSpec& spec);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_DATA_RECEIVED_IMAGES_H_
