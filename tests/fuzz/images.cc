// An image file of any format, or a data URL of one.
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "common/images/decode.h"
#include "common/images/image_source.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  // Small, so that an input takes milliseconds.
  const tandem::images::ImageLimits limits = {
      .max_bytes = 1 << 20, .max_pixels = 1 << 14, .max_scanned_pixels = 1 << 18};
  std::string decoded;
  if (absl::StartsWith(bytes, "data:")) {
    const auto read = tandem::images::DecodeDataUrl(bytes);
    if (!read.ok()) return 0;
    if (read->size() > size) std::abort();
    decoded = *read;
    bytes = decoded;
  }
  const auto image = tandem::images::DecodeImage(bytes, "input", limits);
  if (!image.ok()) return 0;
  const int64_t pixels = image->height * image->width;
  if (pixels < 1 || pixels > limits.max_pixels) std::abort();
  if (static_cast<int64_t>(image->rgb.size()) != 3 * pixels) std::abort();
  return 0;
}
