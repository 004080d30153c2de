#include "common/rpc/reset_limit.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/net/host_port.h"
#include "common/status/file_descriptor.h"

namespace tandem::rpc {
namespace {

// An address and a port. IPv4 stands as ::ffff:a.b.c.d, as a socket of both kinds sees it.
struct Endpoint {
  in6_addr address{};
  int port = 0;

  bool operator==(const Endpoint& other) const {
    return port == other.port && std::memcmp(&address, &other.address, sizeof(address)) == 0;
  }
};

in6_addr Mapped(const in_addr& address) {
  in6_addr out{};
  out.s6_addr[10] = out.s6_addr[11] = 0xff;
  std::memcpy(&out.s6_addr[12], &address, sizeof(address));
  return out;
}

bool ParsePeer(absl::string_view peer, Endpoint* out) {
  const bool v4 = absl::ConsumePrefix(&peer, "ipv4:");
  if (!v4 && !absl::ConsumePrefix(&peer, "ipv6:")) return false;
  const std::string text = absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || !absl::SimpleAtoi(text.substr(colon + 1), &out->port)) {
    return false;
  }
  std::string host = text.substr(0, colon);
  if (v4) {
    in_addr address;
    if (inet_pton(AF_INET, host.c_str(), &address) != 1) return false;
    out->address = Mapped(address);
    return true;
  }
  host = host.substr(0, host.find('%'));  // the interface of a link-local address
  host.erase(std::remove_if(host.begin(), host.end(), [](char c) { return c == '[' || c == ']'; }),
             host.end());
  return inet_pton(AF_INET6, host.c_str(), &out->address) == 1;
}

bool ToEndpoint(const sockaddr_storage& from, Endpoint* out) {
  if (from.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
    *out = {Mapped(v4.sin_addr), ntohs(v4.sin_port)};
    return true;
  }
  if (from.ss_family != AF_INET6) return false;
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
  *out = {v6.sin6_addr, ntohs(v6.sin6_port)};
  return true;
}

template <typename GetName>
bool NameOf(GetName get_name, int fd, Endpoint* out) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  return get_name(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
         ToEndpoint(address, out);
}

}  // namespace

double ResetLimit::Level(const Bucket& bucket, absl::Time now) const {
  const double leaked = burst_ * absl::FDivDuration(now - bucket.at, interval_);
  return std::max(0.0, bucket.resets - std::max(0.0, leaked));
}

bool ResetLimit::Exceeds(const std::string& peer, absl::Time now) {
  absl::MutexLock lock(&mu_);
  // A full bucket is empty after an interval: those that are, say nothing any more.
  if (now >= next_sweep_) {
    absl::erase_if(buckets_, [&](const auto& entry) { return Level(entry.second, now) == 0; });
    next_sweep_ = now + interval_;
  }
  Bucket& bucket = buckets_[peer];
  bucket = {Level(bucket, now) + 1, now};
  if (bucket.resets <= burst_) return false;
  buckets_.erase(peer);
  return true;
}

size_t ResetLimit::size() const {
  absl::MutexLock lock(&mu_);
  return buckets_.size();
}

int EndConnections(absl::string_view peer, const std::vector<int>& ports) {
  Endpoint wanted;
  if (!ParsePeer(peer, &wanted)) return 0;
  int num_ended = 0;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator("/proc/self/fd", error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    int number = -1;
    if (!absl::SimpleAtoi(it->path().filename().string(), &number)) continue;
    Endpoint here, there;
    if (!NameOf(getpeername, number, &there) || !(there == wanted)) continue;
    // Looked at again through a descriptor of our own: the number may be another's by now.
    const FileDescriptor own(fcntl(number, F_DUPFD_CLOEXEC, 3));
    if (!own.is_open() || !NameOf(getpeername, own.get(), &there) || !(there == wanted) ||
        !NameOf(getsockname, own.get(), &here) ||
        std::find(ports.begin(), ports.end(), here.port) == ports.end()) {
      continue;
    }
    // Disconnects with a reset; unlike shutdown(2) it drops what was received.
    sockaddr unspecified{};
    unspecified.sa_family = AF_UNSPEC;
    if (connect(own.get(), &unspecified, sizeof(unspecified)) == 0) ++num_ended;
  }
  return num_ended;
}

}  // namespace tandem::rpc
