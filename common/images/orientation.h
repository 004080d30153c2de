// Orientation: how a camera held the picture, 1 to 8 as EXIF counts. Pixels are stored as the sensor
// saw them, so that viewers must turn them.
#ifndef TANDEM_COMMON_IMAGES_ORIENTATION_H_
#define TANDEM_COMMON_IMAGES_ORIENTATION_H_

#include "absl/strings/string_view.h"
#include "common/images/image.h"

namespace tandem::images {

// Returns the orientation that a file states: in `exif`, a TIFF directory with or without the prefix
// "Exif\0\0", or else in `xmp`. 1, which changes nothing, if neither states one from 1 to 8; damaged
// metadata counts as none, because the pixels do not depend on it.
int ReadOrientation(absl::string_view exif, absl::string_view xmp);

// Returns the image upright, as Pillow's ImageOps.exif_transpose() does; 5 to 8 swap the sides.
Image Upright(Image image, int orientation);

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_ORIENTATION_H_
