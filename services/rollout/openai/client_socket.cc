#include "services/rollout/openai/client_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

namespace tandem::rollout::openai {
namespace {

struct End {
  std::string address;
  int port = -1;
};

// getpeername() or getsockname() of a descriptor; port -1 where it is no IP socket.
template <typename Call>
End EndOf(Call call, int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  End end;
  if (call(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return end;
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(storage);
    inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
    end.port = ntohs(address.sin_port);
  } else if (storage.ss_family == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(storage);
    inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof(text));
    end.port = ntohs(address.sin6_port);
  }
  end.address = text;
  return end;
}

}  // namespace

int ClientSocket::Find() const {
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; it != end;
       it.increment(error)) {
    const int fd = std::atoi(it->path().filename().c_str());
    const End peer = EndOf(getpeername, fd);
    if (peer.port == remote_port_ && peer.address == remote_address_ &&
        EndOf(getsockname, fd).port == server_port_) {
      return fd;
    }
  }
  return -1;
}

bool ClientSocket::Gone() {
  if (!std::exchange(looked_up_, true)) fd_ = Find();
  // One that was not found is seen to be gone by the next write.
  if (fd_ < 0) return false;
  pollfd state{.fd = fd_, .events = POLLRDHUP, .revents = 0};
  return poll(&state, 1, 0) > 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

}  // namespace tandem::rollout::openai
