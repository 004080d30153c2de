// Clients of an HTTP server on this machine that do not behave: they wait, trickle, or never read.
#ifndef TANDEM_TESTS_SUPPORT_HTTP_CLIENTS_H_
#define TANDEM_TESTS_SUPPORT_HTTP_CLIENTS_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "common/host/file_descriptor.h"

namespace tandem::testing {

// A socket that is not connected yet; reads give up after a minute of silence.
inline host::FileDescriptor HttpSocket() {
  host::FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience{60, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  return fd;
}

inline bool HttpConnect(const host::FileDescriptor& fd, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

inline bool HttpSend(const host::FileDescriptor& fd, const std::string& text) {
  return send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(text.size());
}

// A connection over which `text` has gone and nothing else. `source` is the client's address.
inline host::FileDescriptor HttpDial(int port, const std::string& text = "",
                                     const char* source = nullptr) {
  host::FileDescriptor fd = HttpSocket();
  if (source != nullptr) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, source, &address.sin_addr);
    bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  }
  if (HttpConnect(fd, port) && (text.empty() || HttpSend(fd, text))) return fd;
  return host::FileDescriptor();
}

// What the server sends until it closes the connection.
inline std::string HttpReadAll(const host::FileDescriptor& fd) {
  std::string text;
  char buffer[65536];
  for (ssize_t got; (got = recv(fd.get(), buffer, sizeof(buffer), 0)) > 0;) {
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

// The code of an answer, read to its end; 0 where the connection was closed without one.
inline int HttpCodeOf(const host::FileDescriptor& fd) {
  const std::string text = HttpReadAll(fd);
  return text.rfind("HTTP/1.1 ", 0) == 0 ? std::stoi(text.substr(9)) : 0;
}

// Whether the server has closed the connection by now.
inline bool HttpIsClosed(const host::FileDescriptor& fd) {
  char byte = 0;
  const ssize_t got = recv(fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_HTTP_CLIENTS_H_
