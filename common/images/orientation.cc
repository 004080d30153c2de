#include "common/images/orientation.h"

#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "common/images/read_integer.h"

namespace tandem::images {
namespace {

constexpr absl::string_view kExifPrefix("Exif\0\0", 6);
constexpr uint32_t kOrientationTag = 0x0112;

// Integers of a TIFF file, in the byte order that it states.
class Tiff {
 public:
  Tiff(absl::string_view bytes, bool big_endian) : bytes_(bytes), big_endian_(big_endian) {}

  std::optional<uint32_t> Read16(size_t at) const {
    if (at > bytes_.size() || bytes_.size() - at < 2) return std::nullopt;
    return big_endian_ ? BigEndian16(bytes_, at) : LittleEndian16(bytes_, at);
  }
  std::optional<uint32_t> Read32(size_t at) const {
    if (at > bytes_.size() || bytes_.size() - at < 4) return std::nullopt;
    return big_endian_ ? BigEndian32(bytes_, at) : LittleEndian32(bytes_, at);
  }

 private:
  absl::string_view bytes_;
  bool big_endian_;
};

// The tag's value, whatever number it is; null where there is none.
std::optional<uint32_t> OrientationOfExif(absl::string_view exif) {
  for (int i = 0; i < 2; ++i) exif = absl::StripPrefix(exif, kExifPrefix);
  if (!absl::StartsWith(exif, "II") && !absl::StartsWith(exif, "MM")) return std::nullopt;
  const Tiff tiff(exif, /*big_endian=*/exif[0] == 'M');
  if (tiff.Read16(2) != 42u) return std::nullopt;
  const std::optional<uint32_t> directory = tiff.Read32(4);
  if (!directory) return std::nullopt;
  const std::optional<uint32_t> entries = tiff.Read16(*directory);
  if (!entries) return std::nullopt;
  std::optional<uint32_t> found;
  for (size_t i = 0; i < *entries; ++i) {
    const size_t entry = size_t{*directory} + 2 + 12 * i;
    const std::optional<uint32_t> tag = tiff.Read16(entry);
    if (!tag) break;  // the directory is cut off
    if (*tag != kOrientationTag || tiff.Read32(entry + 4) != 1u) continue;
    switch (tiff.Read16(entry + 2).value_or(0)) {
      case 3:
        found = tiff.Read16(entry + 8);
        break;
      case 4:
        found = tiff.Read32(entry + 8);
        break;
      default:
        break;
    }
  }
  return found;
}

// Finds tiff:Orientation="6" or <tiff:Orientation>6<.
std::optional<uint32_t> OrientationOfXmp(absl::string_view xmp) {
  constexpr absl::string_view kName = "tiff:Orientation";
  for (size_t at = xmp.find(kName); at != xmp.npos; at = xmp.find(kName, at + 1)) {
    absl::string_view rest = xmp.substr(at + kName.size());
    if (!absl::ConsumePrefix(&rest, "=\"") && !absl::ConsumePrefix(&rest, ">")) continue;
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') return rest[0] - '0';
  }
  return std::nullopt;
}

}  // namespace

int ReadOrientation(absl::string_view exif, absl::string_view xmp) {
  std::optional<uint32_t> found = OrientationOfExif(exif);
  if (!found) found = OrientationOfXmp(xmp);
  return found && *found >= 1 && *found <= 8 ? static_cast<int>(*found) : 1;
}

Image Upright(Image image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  // Two flips and a transposition make all eight: which of them, by orientation from 1 on.
  constexpr bool kFromRight[] = {false, true, true, false, false, false, true, true};
  constexpr bool kFromBottom[] = {false, false, true, true, false, true, true, false};
  const bool from_right = kFromRight[orientation - 1];
  const bool from_bottom = kFromBottom[orientation - 1];
  const bool transposed = orientation >= 5;
  Image out;
  out.height = transposed ? image.width : image.height;
  out.width = transposed ? image.height : image.width;
  out.rgb.resize(image.rgb.size());
  uint8_t* to = out.rgb.data();
  for (int64_t y = 0; y < out.height; ++y) {
    for (int64_t x = 0; x < out.width; ++x, to += 3) {
      int64_t row = transposed ? x : y;
      int64_t column = transposed ? y : x;
      if (from_bottom) row = image.height - 1 - row;
      if (from_right) column = image.width - 1 - column;
      std::memcpy(to, &image.rgb[3 * (row * image.width + column)], 3);
    }
  }
  return out;
}

}  // namespace tandem::images
