#include "common/http/client.h"

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/http/limited_body.h"

namespace tandem::http {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace ssl = boost::asio::ssl;

namespace {

using boost::system::error_code;
using BeastRequest = beast::http::request<beast::http::string_body>;
using Addresses = asio::ip::tcp::resolver::results_type;
using TlsStream = beast::ssl_stream<beast::tcp_stream>;

constexpr size_t kMaxAnswerBytes = size_t{1} << 20;

// Of all requests: reading the system's authorities takes tens of milliseconds.
ssl::context& TlsContext() {
  static ssl::context* const context = [] {
    auto* made = new ssl::context(ssl::context::tls_client);
    made->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                      ssl::context::no_sslv3 | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1);
    made->set_default_verify_paths();
    made->set_verify_mode(ssl::verify_peer);
    return made;
  }();
  return *context;
}

bool IsAddress(const std::string& host) {
  error_code error;
  asio::ip::make_address(host, error);
  return !error;
}

// One request on one connection, with one deadline for connecting, writing and reading.
template <typename Stream>
class Call {
 public:
  Call(asio::io_context& io, Stream& stream, BeastRequest& request)
      : io_(io), stream_(stream), request_(request) {
    parser_.body_limit(boost::none);
    parser_.get().body().max_bytes = kMaxAnswerBytes;
  }

  // `prepare` continues with its argument once the connection is ready for the request.
  using Then = std::function<void(const error_code&)>;
  error_code Run(const Addresses& addresses, absl::Duration patience,
                 const std::function<void(Then)>& prepare) {
    beast::get_lowest_layer(stream_).expires_after(absl::ToChronoMilliseconds(patience));
    beast::get_lowest_layer(stream_).async_connect(addresses,
                                                   [&](const error_code& connected, const auto&) {
                                                     error_ = connected;
                                                     if (connected) return;
                                                     prepare([&](const error_code& prepared) {
                                                       error_ = prepared;
                                                       if (!prepared) Exchange();
                                                     });
                                                   });
    io_.run();
    return error_;
  }

  beast::http::response<LimitedBody>& response() { return parser_.get(); }

 private:
  void Exchange() {
    beast::http::async_write(stream_, request_, [&](const error_code& written, size_t) {
      error_ = written;
      // A server may answer before it has taken the whole body, and then close.
      if (written == beast::error::timeout) return;
      beast::http::async_read(stream_, buffer_, parser_,
                              [&](const error_code& read, size_t) { error_ = read; });
    });
  }

  asio::io_context& io_;
  Stream& stream_;
  BeastRequest& request_;
  beast::flat_buffer buffer_;
  beast::http::response_parser<LimitedBody> parser_;
  error_code error_;
};

absl::Status Failure(const error_code& error) {
  if (error == beast::error::timeout) {
    return absl::DeadlineExceededError("no complete answer in time");
  }
  return absl::UnavailableError(error.message());
}

template <typename Stream>
Response Take(Call<Stream>& call) {
  Response response;
  response.code = static_cast<int>(call.response().result_int());
  for (const auto& field : call.response()) {
    const std::string name(field.name_string());
    const std::string value(field.value());
    if (field.name() == beast::http::field::content_type) response.content_type = value;
    response.headers.emplace_back(name, value);
  }
  response.body = std::move(call.response().body().text);
  return response;
}

absl::StatusOr<Response> PostPlain(asio::io_context& io, const Addresses& addresses,
                                   BeastRequest& request, absl::Duration patience) {
  beast::tcp_stream stream(io);
  Call<beast::tcp_stream> call(io, stream, request);
  const error_code error =
      call.Run(addresses, patience, [](const auto& then) { then(error_code()); });
  if (error) return Failure(error);
  return Take(call);
}

absl::StatusOr<Response> PostOverTls(asio::io_context& io, const Addresses& addresses,
                                     const std::string& host, BeastRequest& request,
                                     absl::Duration patience) {
  TlsStream stream(io, TlsContext());
  stream.set_verify_callback(ssl::host_name_verification(host));
  // Servers of several names choose their certificate by it; addresses are no names.
  if (!IsAddress(host)) SSL_set_tlsext_host_name(stream.native_handle(), host.c_str());
  Call<TlsStream> call(io, stream, request);
  bool is_accepted = false;
  const error_code error = call.Run(addresses, patience, [&](const auto& then) {
    stream.async_handshake(ssl::stream_base::client, [&, then](const error_code& shaken) {
      is_accepted = !shaken;
      then(shaken);
    });
  });
  if (error && !is_accepted && SSL_get_verify_result(stream.native_handle()) != X509_V_OK) {
    return absl::UnauthenticatedError(
        absl::StrCat("the certificate of ", host, " is not accepted: ",
                     X509_verify_cert_error_string(SSL_get_verify_result(stream.native_handle())),
                     "; SSL_CERT_FILE names a file with another authority"));
  }
  if (error) return Failure(error);
  return Take(call);
}

}  // namespace

absl::StatusOr<Response> Post(PostRequest request, absl::Time deadline) {
  try {
    const Url& url = request.url;
    error_code error;
    asio::io_context io;
    const Addresses addresses =
        asio::ip::tcp::resolver(io).resolve(url.server.host, absl::StrCat(url.server.port), error);
    if (error) return Failure(error);

    BeastRequest sent(beast::http::verb::post, url.path.empty() ? "/" : url.path, 11);
    sent.set(beast::http::field::host, url.Host());
    sent.set(beast::http::field::content_type, request.content_type);
    sent.set(beast::http::field::connection, "close");
    for (const auto& [name, value] : request.headers) sent.set(name, value);
    sent.body() = std::move(request.body);
    sent.prepare_payload();

    const absl::Duration patience = std::max(deadline - absl::Now(), absl::Milliseconds(1));
    return url.tls ? PostOverTls(io, addresses, url.server.host, sent, patience)
                   : PostPlain(io, addresses, sent, patience);
  } catch (const std::exception& error) {
    return absl::UnavailableError(error.what());
  }
}

}  // namespace tandem::http
