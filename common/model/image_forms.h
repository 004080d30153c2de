// The forms in which a sequence shows images of a model that sees an image otherwise among others (CanvasSpec):
// its placeholders tell them. Images of other models have one form.
//
//   const std::vector<images::ImageForm> forms = FormsOf(*spec.vision, token_ids, /*num_images=*/2);
#ifndef TANDEM_COMMON_MODEL_IMAGE_FORMS_H_
#define TANDEM_COMMON_MODEL_IMAGE_FORMS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/images/processor/image_form.h"
#include "common/model/model_spec.h"

namespace tandem::model {

// The placeholders of an image among others; 0: as many as it has alone.
int64_t CountAmongOthers(const VisionSpec& spec);

// The forms of the images in the order of their placeholders (images::FindPlaceholders()). An image with as
// many as one among others has is such; another was its prompt's only one, and may be the first of a
// conversation that went on. PlaceImages() refuses what does not fit.
std::vector<images::ImageForm> FormsOf(const VisionSpec& spec, absl::Span<const int64_t> token_ids,
                                       size_t num_images);

// What caches tell images by: the digest of a file, or in another form one of its own.
std::string ImageKey(const std::string& digest, images::ImageForm form);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_IMAGE_FORMS_H_
