#include "common/net/host_port.h"

#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tandem::net {
namespace {

constexpr size_t kLongestHost = 253;  // of a DNS name

// Digits alone: what libraries read besides (signs, blanks, hex) is a typo here.
std::optional<int> ParsePort(absl::string_view text) {
  if (text.empty() || text.size() > 5) return std::nullopt;
  int port = 0;
  for (const char c : text) {
    if (!absl::ascii_isdigit(c)) return std::nullopt;
    port = port * 10 + (c - '0');
  }
  if (port > kMaxPort) return std::nullopt;
  return port;
}

bool IsName(absl::string_view host) {
  return std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
}

// Digits, colons, the dots of an IPv4 tail, and a zone.
bool IsIpv6(absl::string_view host) {
  const absl::string_view address = host.substr(0, host.find('%'));
  const absl::string_view zone = host.substr(std::min(host.size(), address.size() + 1));
  return absl::StrContains(address, ':') && IsName(zone) &&
         (address.size() == host.size() || !zone.empty()) &&
         std::all_of(address.begin(), address.end(),
                     [](char c) { return absl::ascii_isxdigit(c) || c == ':' || c == '.'; });
}

absl::StatusOr<HostPort> Parse(absl::string_view text, int least_port,
                               std::optional<int> default_port) {
  const auto wrong = [text](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected HOST:PORT, found \"", text, "\"", what));
  };
  if (absl::StrContains(text, "://")) return wrong(": remove the scheme before the host");
  const bool has_brackets = absl::StartsWith(text, "[");
  const size_t bracket = text.find(']');
  if (has_brackets && bracket == absl::string_view::npos) return wrong(": a ] is missing");
  const size_t colon = text.find(':', has_brackets ? bracket : 0);
  absl::string_view host = text.substr(0, colon);
  if (!has_brackets && colon != absl::string_view::npos &&
      absl::StrContains(text.substr(colon + 1), ':')) {
    return wrong(IsIpv6(text) ? ": write an IPv6 address in brackets, [::1]:5000" : "");
  }
  if (has_brackets) {
    if (bracket + 1 != host.size()) return wrong(": expected :PORT after the ]");
    host = host.substr(1, bracket - 1);
    if (!IsIpv6(host)) return wrong(": expected an IPv6 address in the brackets");
  } else if (host.empty()) {
    return wrong(": the host is missing");
  } else if (!IsName(host)) {
    return wrong(": a host consists of letters, digits, '.', '-' and '_'");
  }
  if (host.size() > kLongestHost) return wrong(": the host is too long");
  HostPort out{std::string(host), default_port.value_or(0)};
  if (colon == absl::string_view::npos) {
    if (!default_port.has_value()) return wrong(": the port is missing");
    return out;
  }
  const std::optional<int> port = ParsePort(text.substr(colon + 1));
  if (!port.has_value() || *port < least_port) {
    return wrong(absl::StrCat(": expected a port from ", least_port, " to ", kMaxPort));
  }
  out.port = *port;
  return out;
}

}  // namespace

std::string HostPort::ToString() const {
  return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]:", port)
                                      : absl::StrCat(host, ":", port);
}

absl::StatusOr<HostPort> ParseHostPort(absl::string_view text) {
  return Parse(text, /*least_port=*/1, std::nullopt);
}

absl::StatusOr<HostPort> ParseHostPort(absl::string_view text, int default_port) {
  return Parse(text, /*least_port=*/1, default_port);
}

absl::StatusOr<HostPort> ParseListenAddress(absl::string_view text) {
  return Parse(text, /*least_port=*/0, std::nullopt);
}

bool IsAnyAddress(const HostPort& address) {
  return address.host == "0.0.0.0" || address.host == "::";
}

}  // namespace tandem::net
