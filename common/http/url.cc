#include "common/http/url.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tandem::http {
namespace {

constexpr size_t kLongestShown = 128;
constexpr size_t kLongestFileUrl = 8192;

bool IsPathCharacter(char c) {
  return absl::ascii_isgraph(static_cast<unsigned char>(c)) && c != '?' && c != '#';
}

}  // namespace

std::string Url::Host() const {
  if (server.port != default_port()) return server.ToString();
  return absl::StrContains(server.host, ':') ? absl::StrCat("[", server.host, "]") : server.host;
}

std::string Url::ToString() const { return absl::StrCat(WithoutQuery(), query); }

std::string Url::WithoutQuery() const {
  return absl::StrCat(tls ? "https://" : "http://", Host(), path);
}

absl::StatusOr<Url> ParseUrl(absl::string_view text) {
  const auto expected = [text](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected http://HOST[:PORT][/PATH] or https://..., found \"",
                     absl::Utf8SafeCHexEscape(text.substr(0, kLongestShown)), "\"",
                     why.empty() ? "" : ": ", why));
  };
  Url url;
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "https://")) {
    url.tls = true;
  } else if (!absl::ConsumePrefix(&rest, "http://")) {
    return expected("");
  }
  const size_t slash = rest.find('/');
  absl::string_view path =
      slash == absl::string_view::npos ? absl::string_view() : rest.substr(slash);
  const absl::string_view server = rest.substr(0, slash);
  if (absl::StrContains(server, '@')) {
    // The text may hold a password.
    return absl::InvalidArgumentError("expected a URL without user and password, found one with @");
  }
  for (const char c : path) {
    if (!IsPathCharacter(c)) return expected("a query, a fragment or white space in the path");
  }
  while (absl::ConsumeSuffix(&path, "/")) {
  }
  absl::StatusOr<net::HostPort> parsed = net::ParseHostPort(server, url.default_port());
  if (!parsed.ok()) return expected(parsed.status().message());
  url.server = *std::move(parsed);
  url.path = std::string(path);
  return url;
}

absl::StatusOr<Url> ParseFileUrl(absl::string_view text) {
  const absl::string_view shown = text.substr(0, text.find('?')).substr(0, kLongestShown);
  const auto expected = [shown](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected http://HOST[:PORT][/PATH][?QUERY] or https://..., found \"",
                     absl::Utf8SafeCHexEscape(shown), "\"", why.empty() ? "" : ": ", why));
  };
  Url url;
  if (absl::StartsWithIgnoreCase(text, "https://")) {
    url.tls = true;
  } else if (!absl::StartsWithIgnoreCase(text, "http://")) {
    return expected("");
  }
  if (text.size() > kLongestFileUrl) {
    return expected(absl::StrCat("it has more than ", kLongestFileUrl, " bytes"));
  }
  absl::string_view rest = text.substr(url.tls ? 8 : 7);
  rest = rest.substr(0, rest.find('#'));
  const absl::string_view server = rest.substr(0, rest.find_first_of("/?"));
  rest.remove_prefix(server.size());
  if (absl::StrContains(server, '@')) {
    return absl::InvalidArgumentError("expected a URL without user and password, found one with @");
  }
  for (const char c : rest) {
    if (absl::ascii_isgraph(static_cast<unsigned char>(c))) continue;
    return expected("white space, or a character that is not ASCII; percent-encode it");
  }
  absl::StatusOr<net::HostPort> parsed = net::ParseHostPort(server, url.default_port());
  if (!parsed.ok()) return expected(parsed.status().message());
  url.server = *std::move(parsed);
  const size_t query = rest.find('?');
  url.path = std::string(rest.substr(0, query));
  if (query != absl::string_view::npos) url.query = std::string(rest.substr(query));
  return url;
}

absl::StatusOr<Url> FollowRedirect(const Url& from, absl::string_view location) {
  location = absl::StripAsciiWhitespace(location);
  std::string whole(location);
  if (absl::StartsWith(location, "//")) {
    whole = absl::StrCat(from.tls ? "https:" : "http:", location);
  } else if (absl::StartsWith(location, "/")) {
    whole = absl::StrCat(from.tls ? "https://" : "http://", from.Host(), location);
  }
  absl::StatusOr<Url> to = ParseFileUrl(whole);
  if (to.ok() && from.tls && !to->tls) {
    return absl::PermissionDeniedError(
        absl::StrCat("a redirect from https to ", to->WithoutQuery(), ", which is not encrypted"));
  }
  return to;
}

}  // namespace tandem::http
