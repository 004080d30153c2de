#include "common/images/fetch/image_fetcher.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/http/client.h"
#include "common/http/url.h"
#include "common/images/fetch/image_response.h"
#include "common/io/file_util.h"
#include "common/net/global_address.h"
#include "common/net/timed_resolver.h"
#include "common/status/status_macros.h"

namespace tandem::images {
namespace {

using http::Url;

// Addresses of the server that may be connected to.
absl::StatusOr<std::vector<net::SocketAddress>> AddressesOf(
    const Url& url, const ImageFetcher::Options& options, absl::Time deadline,
    const std::function<bool()>& cancelled) {
  absl::StatusOr<std::vector<net::SocketAddress>> found =
      options.resolve != nullptr ? options.resolve(url.server)
                                 : net::ResolveBefore(url.server, deadline, cancelled);
  RETURN_IF_ERROR(found.status());
  std::vector<net::SocketAddress> good;
  absl::Status problem = absl::UnavailableError("the name has no address");
  for (const net::SocketAddress& address : *found) {
    const absl::Status checked = options.check_address != nullptr ? options.check_address(address)
                                                                  : net::CheckGlobal(address);
    if (checked.ok()) {
      good.push_back(address);
    } else {
      problem = checked;
    }
  }
  if (good.empty()) return problem;
  return good;
}

}  // namespace

absl::StatusOr<std::string> ImageFetcher::Fetch(const std::string& url,
                                                const std::function<bool()>& cancelled) const {
  const absl::Time deadline = absl::Now() + options_.timeout;
  ASSIGN_OR_RETURN(Url next, http::ParseFileUrl(url));
  for (int hop = 0; hop <= options_.max_redirects; ++hop) {
    const std::string place = next.WithoutQuery();
    absl::StatusOr<std::vector<net::SocketAddress>> addresses =
        AddressesOf(next, options_, deadline, cancelled);
    if (!addresses.ok()) return io::AtPlace(place, addresses.status());
    const http::GetRequest request = {.url = next,
                                      .addresses = *std::move(addresses),
                                      .headers = {{"Accept", "image/png, image/jpeg, image/webp"},
                                                  {"Accept-Encoding", "identity"},
                                                  {"User-Agent", "tandem"}},
                                      .max_bytes = static_cast<size_t>(options_.max_bytes)};
    absl::StatusOr<http::Response> response = http::Get(request, deadline, cancelled);
    if (!response.ok()) return io::AtPlace(place, response.status());
    absl::StatusOr<std::optional<Url>> target = ReadImageResponse(next, *response);
    if (!target.ok()) return io::AtPlace(place, target.status());
    if (!target->has_value()) return std::move(response->body);
    next = **std::move(target);
  }
  return io::AtPlace(url.substr(0, url.find('?')),
                     absl::ResourceExhaustedError(absl::StrCat(
                         "expected at most ", options_.max_redirects, " redirects, found more")));
}

}  // namespace tandem::images
