#include "common/images/image_source.h"

#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/images/decode.h"
#include "common/io/file_util.h"
#include "common/io/read_file.h"
#include "common/status/status_macros.h"

namespace tandem::images {
namespace {

constexpr absl::string_view kDataUrl = "data URL";

// %41 becomes A; everything else stays.
absl::StatusOr<std::string> PercentDecode(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    if (text.size() - i < 3 || !absl::ascii_isxdigit(text[i + 1]) ||
        !absl::ascii_isxdigit(text[i + 2])) {
      return absl::InvalidArgumentError(
          absl::StrCat("character ", i, " of the data: expected two hexadecimal digits after %"));
    }
    out += absl::HexStringToBytes(text.substr(i + 1, 2));
    i += 2;
  }
  return out;
}

// The scheme of a URL with "//"; empty for a path.
absl::string_view SchemeOf(absl::string_view source) {
  const size_t end = source.find("://");
  if (end == source.npos || end == 0) return "";
  for (const char c : source.substr(0, end)) {
    if (!absl::ascii_isalnum(c) && c != '+' && c != '-' && c != '.') return "";
  }
  return source.substr(0, end);
}

}  // namespace

bool IsWebUrl(absl::string_view source) {
  return absl::StartsWithIgnoreCase(source, "http://") ||
         absl::StartsWithIgnoreCase(source, "https://");
}

absl::StatusOr<std::string> DecodeDataUrl(absl::string_view url) {
  if (!absl::StartsWithIgnoreCase(url, "data:")) {
    return absl::InvalidArgumentError("expected a URL that begins with data:");
  }
  url.remove_prefix(5);
  const size_t comma = url.find(',');
  if (comma == url.npos) {
    return absl::InvalidArgumentError("expected data:[media type][;base64],DATA, found no comma");
  }
  const bool base64 = absl::EndsWithIgnoreCase(url.substr(0, comma), ";base64");
  const absl::string_view data = url.substr(comma + 1);
  ASSIGN_OR_RETURN(const std::string plain, PercentDecode(data));
  if (!base64) return plain;
  std::string bytes;
  if (!absl::Base64Unescape(plain, &bytes)) {
    return absl::InvalidArgumentError("the data is not base64");
  }
  return bytes;
}

absl::StatusOr<std::string> DataUrlOf(absl::string_view file, const std::string& place) {
  ASSIGN_OR_RETURN(const ImageInfo info, ReadImageInfo(file, place, ImageLimits()));
  return absl::StrCat("data:", info.media_type, ";base64,", absl::Base64Escape(file));
}

absl::StatusOr<ImageBytes> ReadImageSource(const std::string& source, const std::string& folder,
                                           const ImageLimits& limits) {
  if (absl::StartsWithIgnoreCase(source, "data:")) {
    absl::StatusOr<std::string> bytes = DecodeDataUrl(source);
    if (!bytes.ok()) return io::AtPlace(kDataUrl, bytes.status());
    return ImageBytes{*std::move(bytes), std::string(kDataUrl)};
  }
  const absl::string_view scheme = SchemeOf(source);
  if (IsWebUrl(source)) {
    return absl::PermissionDeniedError(absl::StrCat(
        source.substr(0, source.find('?')),
        ": images are not fetched over the network unless asked for: data.allow_urls of a run, "
        "--allow-image-urls of a command"));
  }
  if (!scheme.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": expected a path or a data URL, found a URL of scheme ", scheme));
  }
  if (source.empty())
    return absl::InvalidArgumentError("expected an image's path or data URL, found no text");
  const std::string path = (std::filesystem::path(folder) / source).string();
  ASSIGN_OR_RETURN(std::string bytes, io::ReadFile(path, limits.max_bytes));
  return ImageBytes{std::move(bytes), path};
}

}  // namespace tandem::images
