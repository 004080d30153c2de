#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/images/image_header.h"
#include "common/images/read_integer.h"
#include "common/status/status_macros.h"

namespace tandem::images {
namespace {

enum Marker : uint32_t {
  kTem = 0x01,
  kSof0 = 0xC0,
  kSof2 = 0xC2,
  kDht = 0xC4,
  kJpg = 0xC8,
  kSof9 = 0xC9,
  kSof10 = 0xCA,
  kDac = 0xCC,
  kSof15 = 0xCF,
  kRst0 = 0xD0,
  kRst7 = 0xD7,
  kSoi = 0xD8,
  kEoi = 0xD9,
  kSos = 0xDA,
  kApp1 = 0xE1,
};

bool IsFrame(uint32_t marker) {
  return marker >= kSof0 && marker <= kSof15 && marker != kDht && marker != kJpg && marker != kDac;
}

// Sequential and progressive, Huffman and arithmetic; the others are lossless or hierarchical.
bool IsSupportedFrame(uint32_t marker) {
  return marker <= kSof2 || marker == kSof9 || marker == kSof10;
}

absl::Status ReadFrame(uint32_t marker, absl::string_view data, size_t at,
                       const ImageLimits& limits, ImageHeader* header) {
  if (!IsSupportedFrame(marker)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("frame at byte %d is of type SOF%d, lossless or hierarchical; expected a "
                        "baseline, extended "
                        "or progressive JPEG",
                        at, marker - kSof0));
  }
  if (header->width != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a second frame at byte ", at));
  }
  if (data.size() < 6) {
    return absl::InvalidArgumentError(absl::StrCat("the frame's header at byte ", at, " has ",
                                                   data.size(), " bytes, expected 6"));
  }
  const uint32_t bits = ByteAt(data, 0);
  const uint32_t colors = ByteAt(data, 5);
  if (bits != 8) {
    return absl::InvalidArgumentError(absl::StrCat("a color has ", bits, " bits, expected 8"));
  }
  if (colors != 1 && colors != 3 && colors != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("a pixel has ", colors, " components, expected 1, 3 or 4"));
  }
  header->height = BigEndian16(data, 1);
  header->width = BigEndian16(data, 3);
  return CheckSize(header->width, header->height, limits);
}

void ReadApp1(absl::string_view data, ImageHeader* header) {
  constexpr absl::string_view kExif("Exif\0\0", 6);
  constexpr absl::string_view kXmp("http://ns.adobe.com/xap/1.0/\0", 29);
  if (absl::StartsWith(data, kExif) && header->exif.empty()) {
    header->exif = data;
  } else if (absl::StartsWith(data, kXmp)) {
    header->xmp = data.substr(kXmp.size());
  }
}

// Returns the place of the next marker's 0xFF at or after `at`, or the end; in a scan's data, 0xFF is
// followed by 0, and restart markers belong to it.
size_t NextMarker(absl::string_view bytes, size_t at) {
  for (; at + 1 < bytes.size(); ++at) {
    if (ByteAt(bytes, at) != 0xFF) continue;
    const uint32_t next = ByteAt(bytes, at + 1);
    if (next != 0 && next != 0xFF && (next < kRst0 || next > kRst7)) return at;
  }
  return bytes.size();
}

}  // namespace

absl::StatusOr<ImageHeader> ReadJpegHeader(absl::string_view bytes, const ImageLimits& limits) {
  ImageHeader header;
  int64_t scans = 0;
  // Bytes between segments are skipped, as libjpeg and Pillow do.
  for (size_t at = NextMarker(bytes, 2); at < bytes.size();) {
    const uint32_t marker = ByteAt(bytes, at + 1);
    if (marker == kEoi) {
      if (scans == 0) return absl::InvalidArgumentError("no scan: the file has no pixels");
      return header;
    }
    if (marker == kSoi) {
      return absl::InvalidArgumentError(absl::StrCat("a second start of image at byte ", at));
    }
    if (marker == kTem) {
      at = NextMarker(bytes, at + 2);
      continue;
    }
    const size_t left = bytes.size() - at - 2;
    const size_t length = left < 2 ? 2 : BigEndian16(bytes, at + 2);
    if (length < 2) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "segment FF%02X at byte %d has the impossible length %d", marker, at, length));
    }
    if (length > left) {
      return absl::InvalidArgumentError(
          absl::StrFormat("segment FF%02X at byte %d says that it has %d bytes, but %d follow: the "
                          "file is truncated",
                          marker, at, length, left));
    }
    const absl::string_view data = bytes.substr(at + 4, length - 2);
    if (IsFrame(marker)) {
      RETURN_IF_ERROR(ReadFrame(marker, data, at, limits, &header));
    } else if (marker == kApp1) {
      ReadApp1(data, &header);
    } else if (marker == kSos) {
      if (header.width == 0) {
        return absl::InvalidArgumentError(absl::StrCat("a scan at byte ", at, " before any frame"));
      }
      ++scans;
      if (scans * header.width * header.height > limits.max_scanned_pixels) {
        return absl::InvalidArgumentError(absl::StrCat(
            "scan ", scans, " at byte ", at, " of ", header.width, " x ", header.height,
            " pixels; pixels times scans are at most ", limits.max_scanned_pixels));
      }
    }
    at = NextMarker(bytes, at + 2 + length);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the file ends at byte ", bytes.size(), " without an end-of-image marker: it is truncated"));
}

}  // namespace tandem::images
