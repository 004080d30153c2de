#include "common/images/fetch/image_fetcher.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/http/client.h"
#include "common/http/url.h"
#include "common/io/file_util.h"
#include "common/net/global_address.h"
#include "common/net/timed_resolver.h"
#include "common/status/status_macros.h"

namespace tandem::images {
namespace {

using http::Url;

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
    if (!IsRedirect(response->code)) {
      const absl::Status status = CheckResponse(*response);
      if (!status.ok()) return io::AtPlace(place, status);
      return std::move(response->body);
    }
    absl::StatusOr<Url> target = http::FollowRedirect(next, HeaderOf(*response, "Location"));
    if (!target.ok()) return io::AtPlace(absl::StrCat(place, ": redirect"), target.status());
    next = *std::move(target);
  }
  return io::AtPlace(url.substr(0, url.find('?')),
                     absl::ResourceExhaustedError(absl::StrCat(
                         "expected at most ", options_.max_redirects, " redirects, found more")));
}

}  // namespace tandem::images
