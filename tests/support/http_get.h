// GET over HTTP/1.1, as a scraper does it.
#ifndef TANDEM_TESTS_SUPPORT_HTTP_GET_H_
#define TANDEM_TESTS_SUPPORT_HTTP_GET_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <string>

namespace tandem::testing {

struct HttpAnswer {
  int code = 0;  // 0: nobody answered
  std::string body;
};

// From 127.0.0.1; gives up after ten seconds of silence.
inline HttpAnswer HttpGet(int port, const std::string& path) {
  HttpAnswer out;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval patience{10, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string text;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    const std::string request =
        "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
      char buffer[65536];
      for (ssize_t got; (got = recv(fd, buffer, sizeof(buffer), 0)) > 0;) text.append(buffer, got);
    }
  }
  close(fd);
  const size_t body = text.find("\r\n\r\n");
  if (text.rfind("HTTP/", 0) != 0 || body == std::string::npos) return out;
  out.code = std::stoi(text.substr(text.find(' ') + 1));
  out.body = text.substr(body + 4);
  return out;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_HTTP_GET_H_
