// What anybody who reaches the port of the metrics exporter can send: a connection's bytes. The first
// byte says in how large pieces they come.
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "common/metrics/metrics_server.h"
#include "tests/support/http_clients.h"

namespace {

using tandem::metrics::MetricsServer;

int Port() {
  static const auto server = MetricsServer::Start("127.0.0.1:0", {.role = "fuzz"});
  if (!server.ok()) std::abort();
  const std::string& address = (*server)->address();
  static const int port = std::stoi(address.substr(address.rfind(':') + 1));
  return port;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto fd = tandem::testing::HttpDial(Port());
  if (!fd.is_open()) std::abort();
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  const size_t piece = data[0] % 2 == 0 ? text.size() : std::max<size_t>(data[0], 64);
  for (size_t at = 0; at < text.size(); at += piece) {
    // Fails once the server has refused the request and closed the connection.
    if (!tandem::testing::HttpSend(fd, text.substr(at, piece))) break;
  }
  shutdown(fd.get(), SHUT_WR);
  const std::string answer = tandem::testing::HttpReadAll(fd);
  if (!answer.empty() && answer.rfind("HTTP/1.", 0) != 0) std::abort();
  return 0;
}
