#include <webp/decode.h>

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/images/decoders.h"
#include "common/images/over_white.h"

namespace tandem::images {
namespace {

const char* WebpProblem(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return "not enough memory";
    case VP8_STATUS_BITSTREAM_ERROR:
      return "the data is damaged";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "an unknown feature";
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return "the data ends early";
    default:
      return "libwebp cannot decode it";
  }
}

// Decodes into `to`, of `num_colors` bytes a pixel.
absl::Status DecodeInto(absl::string_view bytes, WEBP_CSP_MODE mode, int num_colors,
                        const ImageHeader& header, std::vector<uint8_t>* to) {
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) {
    return absl::InternalError("libwebp cannot start: it is of another version");
  }
  to->resize(header.height * header.width * num_colors);
  config.output.colorspace = mode;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = to->data();
  config.output.u.RGBA.stride = static_cast<int>(header.width * num_colors);
  config.output.u.RGBA.size = to->size();
  const VP8StatusCode status =
      WebPDecode(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), &config);
  if (status != VP8_STATUS_OK) return absl::InvalidArgumentError(WebpProblem(status));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Image> DecodeWebp(absl::string_view bytes, const ImageHeader& header) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), &features) !=
      VP8_STATUS_OK) {
    return absl::InvalidArgumentError("the header is damaged");
  }
  Image image;
  image.height = header.height;
  image.width = header.width;
  if (features.has_alpha == 0) {
    const absl::Status status = DecodeInto(bytes, MODE_RGB, 3, header, &image.rgb);
    if (!status.ok()) return status;
    return image;
  }
  std::vector<uint8_t> rgba;
  const absl::Status status = DecodeInto(bytes, MODE_RGBA, 4, header, &rgba);
  if (!status.ok()) return status;
  image.rgb.resize(3 * image.height * image.width);
  const int64_t pixels = image.height * image.width;
  for (int64_t i = 0; i < pixels; ++i) {
    for (int c = 0; c < 3; ++c) image.rgb[3 * i + c] = OverWhite(rgba[4 * i + c], rgba[4 * i + 3]);
  }
  return image;
}

}  // namespace tandem::images
