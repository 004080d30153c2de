// Resizes images as transformers' default processors do: LibTorch's antialiased interpolation of
// bytes (at::_upsample_bicubic2d_aa, at::_upsample_bilinear2d_aa), bit for bit, without LibTorch.
//
//   const Image small = Resize(image, /*height=*/224, /*width=*/224, Filter::kBicubic);
#ifndef TANDEM_COMMON_IMAGES_RESIZE_H_
#define TANDEM_COMMON_IMAGES_RESIZE_H_

#include <cstdint>

#include "common/images/image.h"

namespace tandem::images {

enum class Filter {
  kBilinear,  // a triangle
  kBicubic,   // Keys' cubic, a = -0.5
};

// Sides are positive; the caller has checked that the result fits in memory. A side that stays the
// same is not filtered. Deterministic, the same on every CPU.
Image Resize(const Image& image, int64_t height, int64_t width, Filter filter);

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_RESIZE_H_
