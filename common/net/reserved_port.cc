#include "common/net/reserved_port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/host/file_descriptor.h"

namespace tandem::net {
namespace {

constexpr int kLowest = 10000;  // below are ports of well-known services
constexpr int kFewest = 1000;

struct Range {
  int begin;
  int end;
};

// The larger of the two ranges around ip_local_port_range, or all ports if both are too small.
Range Candidates() {
  int first = 32768;
  int last = 60999;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  const Range below{kLowest, first};
  const Range above{std::max(kLowest, last + 1), 65536};
  const Range larger = below.end - below.begin >= above.end - above.begin ? below : above;
  return larger.end - larger.begin >= kFewest ? larger : Range{kLowest, 65536};
}

// Reserves the port by binding a socket name; false if it is taken. The system frees the name when
// the process ends, however it does.
bool Reserve(int port) {
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = absl::StrCat("tandem-port-", port);
  std::copy(name.begin(), name.end(), address.sun_path + 1);  // an abstract name: no file
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0) return true;  // and stays open
  close(fd);
  return false;
}

bool IsFree(int port) {
  const host::FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return fd.is_open() &&
         bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

}  // namespace

absl::StatusOr<int> ReservePort() {
  const Range range = Candidates();
  const int count = range.end - range.begin;
  std::random_device device;
  const int start = std::uniform_int_distribution<int>(0, count - 1)(device);
  for (int i = 0; i < count; ++i) {
    const int port = range.begin + (start + i) % count;
    // IsFree() finds other programs' ports, Reserve() those that our processes have yet to listen
    // at.
    if (IsFree(port) && Reserve(port)) return port;
  }
  return absl::ResourceExhaustedError(absl::StrCat("no port of 127.0.0.1 from ", range.begin,
                                                   " to ", range.end - 1,
                                                   " is free; stop processes that use them"));
}

}  // namespace tandem::net
