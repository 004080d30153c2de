// ImageFetcher: fetches pictures by http and https URLs that somebody else names, from the public
// internet only.
//
//   const images::ImageFetcher fetcher;
//   ASSIGN_OR_RETURN(const std::string file, fetcher.Fetch("https://example.org/cat.png"));
#ifndef TANDEM_COMMON_IMAGES_FETCH_IMAGE_FETCHER_H_
#define TANDEM_COMMON_IMAGES_FETCH_IMAGE_FETCHER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/socket_address.h"

namespace tandem::images {

// Immutable; any thread may fetch. What URLs name is not trusted:
// - Names are resolved here, addresses that are not global (net::CheckGlobal) are left out, and the
//   connection goes to one that was checked, so that a name which changes its mind helps nobody.
// - Redirects are followed a few times, each checked like a URL of its own; none from https to http.
// - The response has a bounded size and time, status 200, no content encoding, and a content type that
//   says PNG, JPEG, WebP, or only that it is bytes. Decoding checks what it really is.
// - No proxy, cookie or password is used. https needs a certificate that OpenSSL accepts.
class ImageFetcher {
 public:
  struct Options {
    int64_t max_bytes = int64_t{15} << 20;       // what a request may hold
    absl::Duration timeout = absl::Seconds(30);  // of an image, redirects included
    int max_redirects = 4;
    // Null: the system's resolver and net::CheckGlobal(). Only tests, whose servers are on this machine,
    // have others: no flag or configuration sets them.
    std::function<absl::StatusOr<std::vector<net::SocketAddress>>(const net::HostPort& server)>
        resolve;
    std::function<absl::Status(const net::SocketAddress& address)> check_address;
  };

  ImageFetcher() : ImageFetcher(Options()) {}
  explicit ImageFetcher(Options options) : options_(std::move(options)) {}

  // Returns the bytes of the file. Errors name the URL, without its query, and the hop that failed:
  // INVALID_ARGUMENT for what is no URL or no picture, PERMISSION_DENIED for an address that is not
  // global, NOT_FOUND for a status other than 200, RESOURCE_EXHAUSTED for too many bytes or redirects,
  // DEADLINE_EXCEEDED, UNAVAILABLE and UNAUTHENTICATED of the connection; CANCELLED soon after
  // `cancelled`, which may be null, is true.
  absl::StatusOr<std::string> Fetch(const std::string& url,
                                    const std::function<bool()>& cancelled = nullptr) const;

  int64_t max_bytes() const { return options_.max_bytes; }

 private:
  const Options options_;
};

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_FETCH_IMAGE_FETCHER_H_
