// Http2Client: HTTP/2 written by hand, for what no gRPC client does. It opens streams and resets
// them at once, as fast as the connection takes them.
//
//   Http2Client client({.port = server->port(), .headers =
//   GrpcHeaders("/package.Service/Method")}); ASSERT_OK(client.Connect()); const int64_t sent =
//   client.ResetStreams(60000);
#ifndef TANDEM_TESTS_SUPPORT_HTTP2_CLIENT_H_
#define TANDEM_TESTS_SUPPORT_HTTP2_CLIENT_H_

#include <openssl/ssl.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/host/file_descriptor.h"

namespace tandem::testing {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// What a gRPC server expects of a request. `authorization`: what the caller shows, unless empty.
HttpHeaders GrpcHeaders(const std::string& path, const std::string& authorization = "");

struct Http2ClientOptions {
  int port = 0;  // of 127.0.0.1
  HttpHeaders headers;
  // TLS without a certificate of its own; whoever answers is trusted.
  bool tls = false;
  // Of each wait for the server.
  absl::Duration timeout = absl::Seconds(60);
};

// One connection, used by one thread.
class Http2Client {
 public:
  explicit Http2Client(Http2ClientOptions options) : options_(std::move(options)) {}
  ~Http2Client();
  Http2Client(const Http2Client&) = delete;
  Http2Client& operator=(const Http2Client&) = delete;

  // Connects, and exchanges prefaces and SETTINGS. UNAVAILABLE where the server closes.
  absl::Status Connect();

  // HEADERS and RST_STREAM, `count` times. Returns how many were sent before the server closed the
  // connection, if it did.
  int64_t ResetStreams(int64_t count);

  // One call's HEADERS, then CONTINUATION after CONTINUATION of a header that never ends, in frames
  // of `frame_bytes`, until the server closes the connection or `bytes` have gone. Returns how
  // many.
  int64_t SendEndlessHeader(int64_t bytes, size_t frame_bytes);

  // `calls` calls, each with the beginning of a message of `message_bytes` that lacks its last
  // byte, as far as the server's windows allow until it has asked for nothing more for a second.
  // Returns the bytes of messages that went.
  int64_t SendUnfinishedMessages(int calls, size_t message_bytes);

  // A call with one message, as it stands behind gRPC's prefix of 5 bytes, whose first says whether
  // it is compressed. Of up to 60 KB: no window is waited for. Whether it went.
  bool SendMessage(absl::string_view message, bool compressed);

  // Waits until the server has answered a PING: it has read everything before it. UNAVAILABLE where
  // it has closed the connection, or closes it instead.
  absl::Status Ping();

  // Whether the server has said GOAWAY or closed the connection.
  bool refused() const { return goaway_ || closed_; }

 private:
  bool SendAll(absl::string_view bytes);
  // Reads what there is, for `wait` at most, and answers what must be answered.
  void Receive(absl::Duration wait);
  void HandleFrame(uint8_t type, uint8_t flags, uint32_t stream, absl::string_view payload);
  int64_t Write(absl::string_view bytes);
  int64_t Read(char* to, size_t size);

  struct FreeContext {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };
  struct FreeSession {
    void operator()(SSL* session) const { SSL_free(session); }
  };

  const Http2ClientOptions options_;
  host::FileDescriptor fd_;
  std::unique_ptr<SSL_CTX, FreeContext> context_;
  std::unique_ptr<SSL, FreeSession> session_;
  std::string received_;                 // not yet a whole frame
  std::map<uint32_t, int64_t> windows_;  // what may be sent, by stream; 0: by the connection
  int64_t initial_window_ = 65535;
  std::string answers_;  // to be sent: acknowledgements
  uint32_t next_stream_ = 1;
  bool settings_seen_ = false;
  bool pong_seen_ = false;
  bool goaway_ = false;
  bool closed_ = false;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_HTTP2_CLIENT_H_
