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
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

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
using Addresses = std::vector<asio::ip::tcp::endpoint>;
using TlsStream = beast::ssl_stream<beast::tcp_stream>;

constexpr size_t kMaxAnswerBytes = size_t{1} << 20;
constexpr std::chrono::milliseconds kLookForCancel(100);

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

// When a request is given up: one deadline for connecting, writing and reading.
struct Until {
  absl::Duration patience;
  const std::function<bool()>& cancelled;  // may be null
};

// One request on one connection.
template <typename Stream>
class Call {
 public:
  Call(asio::io_context& io, Stream& stream, BeastRequest& request, size_t max_answer_bytes)
      : io_(io), stream_(stream), request_(request) {
    parser_.body_limit(boost::none);
    parser_.get().body().max_bytes = max_answer_bytes;
  }

  // `prepare` continues with its argument once the connection is ready for the request.
  // operation_aborted if it was cancelled.
  using Then = std::function<void(const error_code&)>;
  error_code Run(const Addresses& addresses, const Until& until,
                 const std::function<void(Then)>& prepare) {
    beast::get_lowest_layer(stream_).expires_after(absl::ToChronoMilliseconds(until.patience));
    beast::get_lowest_layer(stream_).async_connect(addresses,
                                                   [&](const error_code& connected, const auto&) {
                                                     error_ = connected;
                                                     if (connected) return;
                                                     prepare([&](const error_code& prepared) {
                                                       error_ = prepared;
                                                       if (!prepared) Exchange();
                                                     });
                                                   });
    while (!io_.stopped()) {
      io_.run_for(kLookForCancel);
      if (until.cancelled != nullptr && !io_.stopped() && until.cancelled()) {
        return asio::error::operation_aborted;
      }
    }
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

// A request and how far it may go.
struct Exchanged {
  BeastRequest& request;
  size_t max_answer_bytes;
  bool tells_limit = false;  // by a code of its own
};

absl::Status Failure(const error_code& error, const Exchanged& exchange) {
  if (error == beast::http::error::body_limit && exchange.tells_limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the answer has more than ", exchange.max_answer_bytes, " bytes"));
  }
  if (error == beast::error::timeout) {
    return absl::DeadlineExceededError("no complete answer in time");
  }
  if (error == asio::error::operation_aborted) {
    return absl::CancelledError("the request is no longer needed");
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

absl::StatusOr<Response> RunPlain(asio::io_context& io, const Addresses& addresses,
                                  const Exchanged& exchange, const Until& until) {
  beast::tcp_stream stream(io);
  Call<beast::tcp_stream> call(io, stream, exchange.request, exchange.max_answer_bytes);
  const error_code error = call.Run(addresses, until, [](const auto& then) { then(error_code()); });
  if (error) return Failure(error, exchange);
  return Take(call);
}

absl::StatusOr<Response> RunOverTls(asio::io_context& io, const Addresses& addresses,
                                    const std::string& host, const Exchanged& exchange,
                                    const Until& until) {
  TlsStream stream(io, TlsContext());
  stream.set_verify_callback(ssl::host_name_verification(host));
  // Servers of several names choose their certificate by it; addresses are no names.
  if (!IsAddress(host)) SSL_set_tlsext_host_name(stream.native_handle(), host.c_str());
  Call<TlsStream> call(io, stream, exchange.request, exchange.max_answer_bytes);
  bool is_accepted = false;
  const error_code error = call.Run(addresses, until, [&](const auto& then) {
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
  if (error) return Failure(error, exchange);
  return Take(call);
}

BeastRequest MakeRequest(beast::http::verb verb, const Url& url, const Headers& headers) {
  BeastRequest request(verb, absl::StrCat(url.path.empty() ? "/" : url.path, url.query), 11);
  request.set(beast::http::field::host, url.Host());
  request.set(beast::http::field::connection, "close");
  for (const auto& [name, value] : headers) request.set(name, value);
  return request;
}

absl::StatusOr<Response> Run(asio::io_context& io, const Url& url, const Addresses& addresses,
                             const Exchanged& exchange, absl::Time deadline,
                             const std::function<bool()>& cancelled) {
  const Until until{.patience = std::max(deadline - absl::Now(), absl::Milliseconds(1)),
                    .cancelled = cancelled};
  return url.tls ? RunOverTls(io, addresses, url.server.host, exchange, until)
                 : RunPlain(io, addresses, exchange, until);
}

}  // namespace

absl::StatusOr<Response> Post(PostRequest request, absl::Time deadline,
                              const std::function<bool()>& cancelled) {
  try {
    const Url& url = request.url;
    BeastRequest sent = MakeRequest(beast::http::verb::post, url, request.headers);
    const Exchanged exchange{.request = sent, .max_answer_bytes = kMaxAnswerBytes};
    error_code error;
    asio::io_context io;
    const auto resolved =
        asio::ip::tcp::resolver(io).resolve(url.server.host, absl::StrCat(url.server.port), error);
    if (error) return Failure(error, exchange);
    Addresses addresses;
    for (const auto& entry : resolved) addresses.push_back(entry.endpoint());

    if (sent.count(beast::http::field::content_type) == 0) {
      sent.set(beast::http::field::content_type, request.content_type);
    }
    sent.body() = std::move(request.body);
    sent.prepare_payload();
    return Run(io, url, addresses, exchange, deadline, cancelled);
  } catch (const std::exception& error) {
    return absl::UnavailableError(error.what());
  }
}

absl::StatusOr<Response> Get(const GetRequest& request, absl::Time deadline,
                             const std::function<bool()>& cancelled) {
  try {
    Addresses addresses;
    for (const net::SocketAddress& address : request.addresses) {
      asio::ip::tcp::endpoint& endpoint = addresses.emplace_back();
      if (address.length > endpoint.capacity()) {
        return absl::InvalidArgumentError("expected addresses of IPv4 or IPv6");
      }
      std::memcpy(endpoint.data(), &address.bytes, address.length);
      endpoint.resize(address.length);
    }
    if (addresses.empty()) return absl::InvalidArgumentError("expected an address to connect to");
    BeastRequest sent = MakeRequest(beast::http::verb::get, request.url, request.headers);
    const Exchanged exchange{
        .request = sent, .max_answer_bytes = request.max_bytes, .tells_limit = true};
    asio::io_context io;
    return Run(io, request.url, addresses, exchange, deadline, cancelled);
  } catch (const std::exception& error) {
    return absl::UnavailableError(error.what());
  }
}

}  // namespace tandem::http
