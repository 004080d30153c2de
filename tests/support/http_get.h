// Requests over HTTP/1.1 to this machine, as a scraper or a client makes them.
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
  std::string head;
  std::string body;  // as it is on the wire
};

// A connection to 127.0.0.1 over which the request has gone; -1 where there is none. Reads give up
// after `patience_seconds` of silence. The caller closes it.
inline int HttpOpen(int port, const std::string& request, int patience_seconds = 10) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval patience{patience_seconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      send(fd, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
    return fd;
  }
  close(fd);
  return -1;
}

inline HttpAnswer HttpAsk(int port, const std::string& request, int patience_seconds = 10) {
  HttpAnswer out;
  std::string text;
  const int fd = HttpOpen(port, request, patience_seconds);
  if (fd < 0) return out;
  char buffer[65536];
  for (ssize_t got; (got = recv(fd, buffer, sizeof(buffer), 0)) > 0;) text.append(buffer, got);
  close(fd);
  const size_t body = text.find("\r\n\r\n");
  if (text.rfind("HTTP/", 0) != 0 || body == std::string::npos) return out;
  out.code = std::stoi(text.substr(text.find(' ') + 1));
  out.head = text.substr(0, body);
  out.body = text.substr(body + 4);
  return out;
}

inline HttpAnswer HttpGet(int port, const std::string& path) {
  return HttpAsk(port, "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
}

// The text of a POST of JSON; `headers` are whole lines.
inline std::string HttpPost(const std::string& path, const std::string& body,
                            const std::string& headers = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
         headers + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_HTTP_GET_H_
