#include "common/comm/socket_links.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/comm/address_name.h"
#include "common/net/listener.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

// A header or a small message must not wait until the peer has acknowledged the one before.
void SendAtOnce(const host::FileDescriptor& fd) {
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

class TcpFamily : public LinkFamily {
 public:
  explicit TcpFamily(std::string host) : host_(std::move(host)) {}

  absl::StatusOr<Listener> Listen(int backlog) override {
    const std::string what = absl::StrCat("listening on ", host_);
    const absl::StatusOr<std::vector<net::SocketAddress>> addresses = net::Resolve({host_, 0});
    RETURN_IF_ERROR(addresses.status()) << what;
    absl::StatusOr<net::Listener> listener = net::Listen(addresses->front(), backlog);
    RETURN_IF_ERROR(listener.status()) << what;
    Listener out;
    out.fd = std::move(listener->fd);
    out.address.assign(reinterpret_cast<const char*>(&listener->address.bytes),
                       listener->address.length);
    return out;
  }

  absl::StatusOr<host::FileDescriptor> Connect(const std::string& address, absl::Time deadline,
                                               const Cancelled& cancelled) override {
    sockaddr_storage to{};
    if (address.size() > sizeof(to)) return absl::UnavailableError("its address is too long");
    std::memcpy(&to, address.data(), address.size());
    const auto length = static_cast<socklen_t>(address.size());
    const std::string what = AddressName(to, length);
    host::FileDescriptor fd(socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.is_open()) return SocketError(what);
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), length) != 0) {
      if (errno != EINPROGRESS) return SocketError(what);
      RETURN_IF_ERROR(AwaitSocket(fd, POLLOUT, deadline, cancelled, what));
      int error = 0;
      socklen_t size = sizeof(error);
      getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) {
        errno = error;
        return SocketError(what);
      }
    }
    SendAtOnce(fd);
    return fd;
  }

  bool Admit(const host::FileDescriptor& fd) override {
    SendAtOnce(fd);
    return true;
  }

  std::string NameOf(const sockaddr_storage& peer, socklen_t length) const override {
    return AddressName(peer, length);
  }

 private:
  const std::string host_;
};

}  // namespace

absl::StatusOr<std::vector<host::FileDescriptor>> ConnectSockets(const std::string& host, int rank,
                                                                 int size, StoreConnection& store,
                                                                 absl::Time deadline,
                                                                 const Cancelled& cancelled) {
  TcpFamily family(host);
  return ConnectMesh(family, rank, size, store, deadline, cancelled);
}

}  // namespace tandem::comm
