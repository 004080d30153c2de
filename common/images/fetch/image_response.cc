#include "common/images/fetch/image_response.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/io/file_util.h"
#include "common/status/status_macros.h"

namespace tandem::images {
namespace {

absl::string_view HeaderOf(const http::Response& response, absl::string_view name) {
  for (const auto& [key, value] : response.headers) {
    if (absl::EqualsIgnoreCase(key, name)) return value;
  }
  return "";
}

bool IsRedirect(int code) {
  return code == 301 || code == 302 || code == 303 || code == 307 || code == 308;
}

absl::Status CheckType(const http::Response& response) {
  const absl::string_view header = HeaderOf(response, "Content-Type");
  const std::string type =
      absl::AsciiStrToLower(absl::StripAsciiWhitespace(header.substr(0, header.find(';'))));
  for (const char* known : {"", "image/png", "image/jpeg", "image/jpg", "image/webp",
                            "application/octet-stream", "binary/octet-stream"}) {
    if (type == known) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected a response of type image/png, image/jpeg or image/webp, found ",
                   type.substr(0, 100)));
}

absl::Status CheckResponse(const http::Response& response) {
  if (response.code != 200) {
    return absl::NotFoundError(absl::StrCat("the server answers with status ", response.code));
  }
  const absl::string_view encoding = HeaderOf(response, "Content-Encoding");
  if (!encoding.empty() && !absl::EqualsIgnoreCase(encoding, "identity")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "expected bytes as they are, found the content encoding ", encoding.substr(0, 100)));
  }
  return CheckType(response);
}

}  // namespace

absl::StatusOr<std::optional<http::Url>> ReadImageResponse(const http::Url& url,
                                                           const http::Response& response) {
  if (!IsRedirect(response.code)) {
    RETURN_IF_ERROR(CheckResponse(response));
    return std::nullopt;
  }
  absl::StatusOr<http::Url> target = http::FollowRedirect(url, HeaderOf(response, "Location"));
  RETURN_IF_ERROR(io::AtPlace("redirect", target.status()));
  return *std::move(target);
}

}  // namespace tandem::images
