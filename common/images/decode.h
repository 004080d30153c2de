// Decodes pictures: PNG, JPEG and WebP, told apart by their content.
//
//   ASSIGN_OR_RETURN(const images::Image image,
//                    images::DecodeImage(bytes, "cat.jpg", images::ImageLimits()));
//   // image.rgb: [image.height, image.width, 3]
//
// Pixels equal those that transformers' processors get of Pillow, but for damaged files, which Pillow
// may decode in part and which are refused here: palettes are looked up, grey is repeated, of 16 bits
// a color the upper 8 are kept (grey of 16 bits is cut to 255, as Pillow does), CMYK is converted,
// transparent pixels are laid over white, and the picture is turned upright.
#ifndef TANDEM_COMMON_IMAGES_DECODE_H_
#define TANDEM_COMMON_IMAGES_DECODE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/images/image.h"
#include "common/images/image_limits.h"

namespace tandem::images {

// `place` begins every error: the file's name, or where the bytes came from. INVALID_ARGUMENT for
// another format, an animation, a truncated or damaged file, or one beyond the limits, which are
// checked before anything is allocated. Any thread; takes the time of one thread.
absl::StatusOr<Image> DecodeImage(absl::string_view bytes, const std::string& place,
                                  const ImageLimits& limits);

// What a file's header says.
struct ImageInfo {
  std::string media_type;  // image/png, image/jpeg or image/webp
  int64_t width = 0;       // before the picture is turned upright
  int64_t height = 0;
};

// Reads the header of an image without decoding it. Errors of DecodeImage(), but for damaged pixels.
absl::StatusOr<ImageInfo> ReadImageInfo(absl::string_view bytes, const std::string& place,
                                        const ImageLimits& limits);

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_DECODE_H_
