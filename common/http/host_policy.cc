#include "common/http/host_policy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace tandem::http {
namespace {

struct Authority {
  std::string host;  // lower case, without brackets and without a final dot
  int port = -1;     // -1: not given
};

bool IsIpv4(const std::string& host) {
  in_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1;
}

bool IsIpv6(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool IsLoopbackLiteral(const std::string& host) {
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool IsLocalhost(absl::string_view host) {
  return host == "localhost" || absl::EndsWith(host, ".localhost");
}

bool IsName(absl::string_view host) {
  return !host.empty() && host.size() <= 253 &&
         std::all_of(host.begin(), host.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_';
         });
}

std::optional<Authority> ParseAuthority(absl::string_view text) {
  Authority out;
  absl::string_view port;
  if (absl::ConsumePrefix(&text, "[")) {
    const size_t end = text.find(']');
    if (end == absl::string_view::npos) return std::nullopt;
    out.host = absl::AsciiStrToLower(text.substr(0, end));
    port = text.substr(end + 1);
    if (!IsIpv6(out.host)) return std::nullopt;
  } else {
    const size_t colon = std::min(text.find(':'), text.size());
    out.host = absl::AsciiStrToLower(absl::StripSuffix(text.substr(0, colon), "."));
    port = text.substr(colon);
    if (!IsName(out.host)) return std::nullopt;
  }
  if (!port.empty() && (!absl::ConsumePrefix(&port, ":") || !absl::SimpleAtoi(port, &out.port) ||
                        out.port < 0 || out.port > net::kMaxPort)) {
    return std::nullopt;
  }
  return out;
}

// The names that /etc/hosts gives this machine beside its own: a pod's full name stands there.
std::set<std::string> MachineNames() {
  char buffer[256] = "";
  if (gethostname(buffer, sizeof(buffer) - 1) != 0) return {};
  const std::string own = absl::AsciiStrToLower(buffer);
  std::set<std::string> names = {own};
  std::ifstream hosts("/etc/hosts");
  for (std::string line; std::getline(hosts, line);) {
    line = absl::AsciiStrToLower(line.substr(0, line.find('#')));
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (std::find(words.begin(), words.end(), own) == words.end()) continue;
    names.insert(words.begin() + 1, words.end());
  }
  return names;
}

}  // namespace

std::vector<std::string> AllowedHostsOfEnvironment() {
  const char* const names = std::getenv(kAllowHostVariable);
  return absl::StrSplit(names == nullptr ? "" : names, ',', absl::SkipWhitespace());
}

absl::StatusOr<HostPolicy> HostPolicy::Make(const net::HostPort& listen,
                                            const std::vector<std::string>& allowed) {
  HostPolicy out;
  const std::string host = absl::AsciiStrToLower(listen.host);
  out.loopback_ = IsLocalhost(host) || IsLoopbackLiteral(host);
  out.names_.insert(host);
  if (!out.loopback_) out.names_.merge(MachineNames());
  for (const std::string& name : allowed) {
    const std::string lower = absl::AsciiStrToLower(absl::StripAsciiWhitespace(name));
    if (!IsName(absl::StripPrefix(lower, "."))) {
      return absl::InvalidArgumentError(absl::StrCat(
          "http-allow-host: expected a host name, without scheme or port, found \"", name, "\""));
    }
    if (lower.front() == '.') {
      out.suffixes_.push_back(lower);
    } else {
      out.allowed_.insert(lower);
    }
  }
  return out;
}

bool HostPolicy::IsListed(absl::string_view host) const {
  return allowed_.count(std::string(host)) > 0 ||
         std::any_of(suffixes_.begin(), suffixes_.end(),
                     [&](const std::string& suffix) { return absl::EndsWith(host, suffix); });
}

bool HostPolicy::IsOurs(absl::string_view host) const {
  const std::string name(host);
  if (IsIpv4(name) || IsIpv6(name) || IsLocalhost(name) || names_.count(name) > 0) return true;
  if (loopback_) return false;
  return !absl::StrContains(name, '.') || absl::EndsWith(name, ".svc") ||
         absl::EndsWith(name, ".svc.cluster.local") || absl::EndsWith(name, ".internal");
}

std::optional<Error> HostPolicy::CheckHost(const Request& request) const {
  const std::string* header = request.Header("Host");
  if (header == nullptr) return std::nullopt;
  const std::optional<Authority> host = ParseAuthority(*header);
  if (host.has_value() && (IsOurs(host->host) || IsListed(host->host))) return std::nullopt;
  return Error{421, "HOST_NOT_ALLOWED",
               absl::StrCat("this server does not serve the host name \"", header->substr(0, 253),
                            "\"; use its IP address, or allow the name with --http-allow-host")};
}

std::optional<Error> HostPolicy::CheckOrigin(const Request& request) const {
  if (const std::string* header = request.Header("Origin"); header != nullptr) {
    const size_t separator = std::min(header->find("://"), header->size());
    const std::string scheme = absl::AsciiStrToLower(header->substr(0, separator));
    const std::optional<Authority> origin =
        ParseAuthority(absl::StripPrefix(header->substr(separator), "://"));
    const std::string* host_header = request.Header("Host");
    const std::optional<Authority> host =
        host_header == nullptr ? std::nullopt : ParseAuthority(*host_header);
    const int usual_port = scheme == "https" ? 443 : 80;
    const auto port_of = [&](const Authority& a) { return a.port < 0 ? usual_port : a.port; };
    const bool known_scheme = scheme == "http" || scheme == "https";
    const bool same = known_scheme && origin.has_value() && host.has_value() &&
                      origin->host == host->host && port_of(*origin) == port_of(*host);
    if (same || (known_scheme && origin.has_value() && IsListed(origin->host))) {
      return std::nullopt;
    }
    return Error{403, "ORIGIN_NOT_ALLOWED",
                 absl::StrCat("pages of ", header->substr(0, 253),
                              " may not use this server; allow their host with "
                              "--http-allow-host")};
  }
  // Browsers omit Origin from a plain GET, such as <img>'s, but send Sec-Fetch-Site.
  const std::string* site = request.Header("Sec-Fetch-Site");
  if (site == nullptr || *site == "same-origin" || *site == "none") return std::nullopt;
  const std::string* mode = request.Header("Sec-Fetch-Mode");
  const std::string* destination = request.Header("Sec-Fetch-Dest");
  const bool link = request.method == "GET" && mode != nullptr && *mode == "navigate" &&
                    destination != nullptr && *destination == "document";
  if (link) return std::nullopt;
  return Error{403, "ORIGIN_NOT_ALLOWED", "pages of other sites may not use this server"};
}

}  // namespace tandem::http
