// ReadImageResponse(): what a server's answer to a request for a picture says.
#ifndef TANDEM_COMMON_IMAGES_FETCH_IMAGE_RESPONSE_H_
#define TANDEM_COMMON_IMAGES_FETCH_IMAGE_RESPONSE_H_

#include <optional>

#include "absl/status/statusor.h"
#include "common/http/message.h"
#include "common/http/url.h"

namespace tandem::images {

// Returns where a redirect leads, or nullopt if the body is the file. Errors, which do not name `url`, are
// those of ImageFetcher::Fetch(): NOT_FOUND for another status than 200 and redirects, INVALID_ARGUMENT for
// a content encoding, for a content type that is no picture, and for a redirect to what is no URL of a
// file; PERMISSION_DENIED for a redirect from https to http.
absl::StatusOr<std::optional<http::Url>> ReadImageResponse(const http::Url& url,
                                                           const http::Response& response);

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_FETCH_IMAGE_RESPONSE_H_
