// ImageForm: LLaVA-OneVision sees an image that is its prompt's only one as tiles, and several images of a
// prompt as one tile each. Other families see an image in one form.
#ifndef TANDEM_COMMON_IMAGES_PROCESSOR_IMAGE_FORM_H_
#define TANDEM_COMMON_IMAGES_PROCESSOR_IMAGE_FORM_H_

#include <cstddef>

namespace tandem::images {

enum class ImageForm {
  kAlone,        // the one form of other families
  kAmongOthers,  // of LLaVA-OneVision: padded to a square, one tile
};

// The form in which a processor shows each of a prompt's images.
inline ImageForm FormOfEach(size_t num_images) {
  return num_images == 1 ? ImageForm::kAlone : ImageForm::kAmongOthers;
}

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_PROCESSOR_IMAGE_FORM_H_
