// Requests over TLS, to a server whose certificate the test's own authority issued.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <memory>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "common/http/client.h"
#include "tests/support/certificates.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;

using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TestAuthority;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Answers one request with its own body.
class TlsEcho {
 public:
  explicit TlsEcho(const rpc::SecurityOptions& files) : tls_(asio::ssl::context::tls_server) {
    tls_.use_certificate_chain_file(files.tls_cert);
    tls_.use_private_key_file(files.tls_key, asio::ssl::context::pem);
    thread_ = std::thread([this] { Serve(); });
  }
  ~TlsEcho() { thread_.join(); }

  int port() const { return acceptor_.local_endpoint().port(); }

 private:
  void Serve() {
    boost::system::error_code error;  // a client that does not trust the server leaves
    asio::ip::tcp::socket socket(io_);
    acceptor_.accept(socket, error);
    asio::ssl::stream<asio::ip::tcp::socket> stream(std::move(socket), tls_);
    stream.handshake(asio::ssl::stream_base::server, error);
    if (error) return;
    beast::flat_buffer buffer;
    beast::http::request<beast::http::string_body> request;
    beast::http::read(stream, buffer, request, error);
    if (error) return;
    beast::http::response<beast::http::string_body> response(beast::http::status::ok, 11);
    response.set("X-Host", request[beast::http::field::host]);
    response.body() = request.body();
    response.prepare_payload();
    beast::http::write(stream, response, error);
    stream.shutdown(error);
  }

  asio::io_context io_;
  asio::ip::tcp::acceptor acceptor_{
      io_, asio::ip::tcp::endpoint(asio::ip::make_address("127.0.0.1"), 0)};
  asio::ssl::context tls_;
  std::thread thread_;
};

class TlsClientTest : public ::testing::Test {
 protected:
  // Once for all cases: the client reads the authorities with the first request.
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    authority_ = new TestAuthority(*folder_, "ca");
    setenv("SSL_CERT_FILE", authority_->ca_path().c_str(), /*overwrite=*/1);
  }

  static absl::StatusOr<Response> PostTo(const std::string& host, const TlsEcho& server,
                                         absl::Duration patience = absl::Seconds(60)) {
    return Post(
        {.url = {.tls = true, .server = {host, server.port()}, .path = "/v1"}, .body = "secret"},
        absl::Now() + patience);
  }

  static TempFolder* folder_;
  static TestAuthority* authority_;
};
TempFolder* TlsClientTest::folder_ = nullptr;
TestAuthority* TlsClientTest::authority_ = nullptr;

TEST_F(TlsClientTest, ReachesAServerOfATrustedAuthority) {
  const TlsEcho server(authority_->Issue("localhost", {}));
  ASSERT_OK_AND_ASSIGN(const Response answer, PostTo("localhost", server));
  EXPECT_EQ(answer.code, 200);
  EXPECT_EQ(answer.body, "secret");
  EXPECT_THAT(answer.headers,
              ::testing::Contains(::testing::Pair("X-Host", HasSubstr("localhost:"))));
}

TEST_F(TlsClientTest, SendsNothingToAServerOfAnotherName) {
  const TlsEcho server(authority_->Issue("elsewhere", {}));
  EXPECT_THAT(PostTo("localhost", server).status(),
              StatusIs(absl::StatusCode::kUnauthenticated,
                       AllOf(HasSubstr("localhost"), HasSubstr("SSL_CERT_FILE"))));
}

TEST_F(TlsClientTest, SendsNothingToAServerOfAnUnknownAuthority) {
  const TempFolder folder;
  const TestAuthority other(folder, "other");
  const TlsEcho server(other.Issue("localhost", {}));
  EXPECT_THAT(PostTo("localhost", server).status(),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("not accepted")));
}

TEST_F(TlsClientTest, SendsNothingToAServerWhoseCertificateIsOver) {
  const TlsEcho server(authority_->Issue("localhost", {.valid_for = -absl::Minutes(1)}));
  EXPECT_THAT(PostTo("localhost", server).status(),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("expired")));
}

}  // namespace
}  // namespace tandem::http
