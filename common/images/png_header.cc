#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/images/image_header.h"
#include "common/images/read_integer.h"
#include "common/status/status_macros.h"
#include "common/text/printable.h"

namespace tandem::images {
namespace {

constexpr size_t kPngSignatureBytes = 8;
constexpr size_t kIhdrBytes = 13;
constexpr size_t kPngChunkOverhead = 12;  // length, type, checksum

// The text of an iTXt chunk with XMP, if it is not compressed: keyword, compression flag and method,
// language, translated keyword, each text ended by a zero byte.
absl::string_view PngXmpOf(absl::string_view data) {
  constexpr absl::string_view kKeyword("XML:com.adobe.xmp\0\0\0", 20);
  if (!absl::StartsWith(data, kKeyword)) return {};
  data.remove_prefix(kKeyword.size());
  for (int i = 0; i < 2; ++i) {
    const size_t end = data.find('\0');
    if (end == data.npos) return {};
    data.remove_prefix(end + 1);
  }
  return data;
}

}  // namespace

absl::StatusOr<ImageHeader> ReadPngHeader(absl::string_view bytes, const ImageLimits& limits) {
  ImageHeader header;
  bool has_data = false;
  size_t at = kPngSignatureBytes;
  for (bool ended = false; !ended;) {
    const size_t left = bytes.size() - at;
    if (left < kPngChunkOverhead) {
      return absl::InvalidArgumentError(absl::StrCat("the file ends at byte ", bytes.size(),
                                                     " without a chunk IEND: it is truncated"));
    }
    const size_t length = BigEndian32(bytes, at);
    const absl::string_view type = bytes.substr(at + 4, 4);
    const auto chunk = [&] {
      return absl::StrCat("chunk ", text::PrintableLine(type), " at byte ", at);
    };
    if (length > left - kPngChunkOverhead) {
      return absl::InvalidArgumentError(absl::StrCat(chunk(), " says that it has ", length,
                                                     " bytes, but ", left - kPngChunkOverhead,
                                                     " follow: the file is truncated"));
    }
    const absl::string_view data = bytes.substr(at + 8, length);
    if ((at == kPngSignatureBytes) != (type == "IHDR")) {
      return absl::InvalidArgumentError(
          absl::StrCat(chunk(), ": the first chunk, and no other, is IHDR"));
    }
    if (type == "IHDR") {
      if (length != kIhdrBytes) {
        return absl::InvalidArgumentError(
            absl::StrCat(chunk(), " has ", length, " bytes, expected ", kIhdrBytes));
      }
      header.width = BigEndian32(data, 0);
      header.height = BigEndian32(data, 4);
      RETURN_IF_ERROR(CheckSize(header.width, header.height, limits));
    } else if (type == "acTL") {
      return absl::InvalidArgumentError(
          absl::StrCat("animated PNG (", chunk(), "): expected a still picture; save one frame"));
    } else if (type == "IDAT") {
      has_data = true;
    } else if (type == "eXIf") {
      header.exif = data;
    } else if (type == "iTXt" && header.xmp.empty()) {
      header.xmp = PngXmpOf(data);
    } else if (type == "IEND") {
      ended = true;
    }
    at += kPngChunkOverhead + length;
  }
  if (!has_data) return absl::InvalidArgumentError("no chunk IDAT: the file has no pixels");
  return header;
}

}  // namespace tandem::images
