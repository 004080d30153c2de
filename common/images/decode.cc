#include "common/images/decode.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/images/decoders.h"
#include "common/images/image_header.h"
#include "common/images/orientation.h"
#include "common/io/file_util.h"
#include "common/status/status_macros.h"

namespace tandem::images {
namespace {

struct Format {
  const char* name;
  const char* media_type;
  absl::StatusOr<ImageHeader> (*read_header)(absl::string_view, const ImageLimits&);
  absl::StatusOr<Image> (*decode)(absl::string_view, const ImageHeader&);
};

constexpr Format kPng = {"PNG", "image/png", &ReadPngHeader, &DecodePng};
constexpr Format kJpeg = {"JPEG", "image/jpeg", &ReadJpegHeader, &DecodeJpeg};
constexpr Format kWebp = {"WebP", "image/webp", &ReadWebpHeader, &DecodeWebp};

// A format that people send and that is not read.
absl::string_view NameOfOther(absl::string_view bytes) {
  using absl::StartsWith;
  if (StartsWith(bytes, "GIF8")) return "GIF";
  if (StartsWith(bytes, "BM")) return "BMP";
  if (StartsWith(bytes, "II*") || StartsWith(bytes, absl::string_view("MM\0*", 4))) return "TIFF";
  if (bytes.size() >= 12 && bytes.substr(4, 4) == "ftyp") return "HEIF, AVIF or a video";
  if (StartsWith(bytes, "%PDF")) return "PDF";
  if (StartsWith(bytes, "<")) return "SVG, XML or HTML";
  if (StartsWith(bytes, "version https://git-lfs")) return "a pointer of Git LFS: fetch the file";
  return "";
}

absl::StatusOr<const Format*> FormatOf(absl::string_view bytes) {
  if (absl::StartsWith(bytes, "\x89PNG\r\n\x1a\n")) return &kPng;
  if (absl::StartsWith(bytes, "\xFF\xD8\xFF")) return &kJpeg;
  if (bytes.size() >= 12 && absl::StartsWith(bytes, "RIFF") && bytes.substr(8, 4) == "WEBP") {
    return &kWebp;
  }
  if (bytes.empty()) return absl::InvalidArgumentError("expected an image, found no bytes");
  const absl::string_view other = NameOfOther(bytes);
  return absl::InvalidArgumentError(absl::StrCat(
      "expected a PNG, JPEG or WebP image, found ",
      other.empty()
          ? absl::StrCat("bytes that begin with ", absl::BytesToHexString(bytes.substr(0, 8)))
          : std::string(other)));
}

struct Parsed {
  const Format* format;
  ImageHeader header;  // parts of the bytes
};

absl::StatusOr<Parsed> Parse(absl::string_view bytes, const ImageLimits& limits) {
  if (static_cast<int64_t>(bytes.size()) > limits.max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the image has ", bytes.size(), " bytes, more than ", limits.max_bytes));
  }
  ASSIGN_OR_RETURN(const Format* format, FormatOf(bytes));
  const absl::StatusOr<ImageHeader> header = format->read_header(bytes, limits);
  if (!header.ok()) return io::AtPlace(format->name, header.status());
  return Parsed{format, *header};
}

absl::StatusOr<Image> Decode(absl::string_view bytes, const ImageLimits& limits) {
  ASSIGN_OR_RETURN(const Parsed parsed, Parse(bytes, limits));
  absl::StatusOr<Image> image = parsed.format->decode(bytes, parsed.header);
  if (!image.ok()) return io::AtPlace(parsed.format->name, image.status());
  return Upright(*std::move(image), ReadOrientation(parsed.header.exif, parsed.header.xmp));
}

}  // namespace

absl::StatusOr<Image> DecodeImage(absl::string_view bytes, const std::string& place,
                                  const ImageLimits& limits) {
  absl::StatusOr<Image> image = Decode(bytes, limits);
  if (!image.ok()) return io::AtPlace(place, image.status());
  return image;
}

absl::StatusOr<ImageInfo> ReadImageInfo(absl::string_view bytes, const std::string& place,
                                        const ImageLimits& limits) {
  const absl::StatusOr<Parsed> parsed = Parse(bytes, limits);
  if (!parsed.ok()) return io::AtPlace(place, parsed.status());
  return ImageInfo{parsed->format->media_type, parsed->header.width, parsed->header.height};
}

}  // namespace tandem::images
