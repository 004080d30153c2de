#include <webp/decode.h>

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/images/image_header.h"
#include "common/images/read_integer.h"
#include "common/status/status_macros.h"
#include "common/text/printable.h"

namespace tandem::images {
namespace {

constexpr size_t kRiffBytes = 12;  // "RIFF", size, "WEBP"
constexpr size_t kRiffChunkOverhead = 8;

// Finds metadata, and that the file has all its chunks.
absl::Status WalkChunks(absl::string_view bytes, ImageHeader* header) {
  const size_t size = size_t{LittleEndian32(bytes, 4)} + 8;
  if (size > bytes.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the header says ", size, " bytes, but the file has ", bytes.size(), ": it is truncated"));
  }
  bytes = bytes.substr(0, size);
  size_t at = kRiffBytes;
  while (at + kRiffChunkOverhead <= bytes.size()) {
    const absl::string_view type = bytes.substr(at, 4);
    const size_t length = LittleEndian32(bytes, at + 4);
    const size_t left = bytes.size() - at - kRiffChunkOverhead;
    if (length > left) {
      return absl::InvalidArgumentError(absl::StrCat("chunk '", text::PrintableLine(type),
                                                     "' at byte ", at, " says that it has ", length,
                                                     " bytes, but ", left, " follow"));
    }
    const absl::string_view data = bytes.substr(at + kRiffChunkOverhead, length);
    if (type == "EXIF") header->exif = data;
    if (type == "XMP ") header->xmp = data;
    at += kRiffChunkOverhead + length + length % 2;  // padded to an even length
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ImageHeader> ReadWebpHeader(absl::string_view bytes, const ImageLimits& limits) {
  WebPBitstreamFeatures features;
  const VP8StatusCode status =
      WebPGetFeatures(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), &features);
  if (status != VP8_STATUS_OK) {
    return absl::InvalidArgumentError(status == VP8_STATUS_NOT_ENOUGH_DATA
                                          ? absl::StrCat("the file ends at byte ", bytes.size(),
                                                         " within its header: it is truncated")
                                          : "the header is damaged");
  }
  if (features.has_animation != 0) {
    return absl::InvalidArgumentError("animated WebP: expected a still picture; save one frame");
  }
  ImageHeader header;
  header.width = features.width;
  header.height = features.height;
  RETURN_IF_ERROR(CheckSize(header.width, header.height, limits));
  RETURN_IF_ERROR(WalkChunks(bytes, &header));
  return header;
}

}  // namespace tandem::images
