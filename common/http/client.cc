#include "common/http/client.h"

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/http/limited_body.h"

namespace tandem::http {

namespace asio = boost::asio;
namespace beast = boost::beast;

namespace {

constexpr size_t kMaxAnswerBytes = size_t{1} << 20;
constexpr std::chrono::milliseconds kLookForCancel(100);

absl::Status Failure(const boost::system::error_code& error) {
  if (error == beast::error::timeout) {
    return absl::DeadlineExceededError("no complete answer in time");
  }
  return absl::UnavailableError(error.message());
}

}  // namespace

absl::StatusOr<Response> Post(const net::HostPort& to, const std::string& path,
                              const std::string& content_type, std::string body,
                              absl::Time deadline, const std::function<bool()>& cancelled) {
  try {
    boost::system::error_code error;
    asio::io_context io;
    const auto addresses =
        asio::ip::tcp::resolver(io).resolve(to.host, absl::StrCat(to.port), error);
    if (error) return Failure(error);

    beast::http::request<beast::http::string_body> request(beast::http::verb::post, path, 11);
    request.set(beast::http::field::host, to.ToString());
    request.set(beast::http::field::content_type, content_type);
    request.set(beast::http::field::connection, "close");
    request.body() = std::move(body);
    request.prepare_payload();

    // One deadline for connecting, writing and reading.
    beast::tcp_stream stream(io);
    const absl::Duration left = std::max(deadline - absl::Now(), absl::Milliseconds(1));
    stream.expires_after(absl::ToChronoMilliseconds(left));
    beast::flat_buffer buffer;
    beast::http::response_parser<LimitedBody> parser;
    parser.body_limit(boost::none);
    parser.get().body().max_bytes = kMaxAnswerBytes;
    const auto done = [&](const boost::system::error_code& result, size_t) { error = result; };
    stream.async_connect(addresses, [&](const boost::system::error_code& connected, const auto&) {
      error = connected;
      if (connected) return;
      beast::http::async_write(stream, request,
                               [&](const boost::system::error_code& written, size_t) {
                                 error = written;
                                 // A server may answer before it has taken the whole body, and then
                                 // close.
                                 if (written != beast::error::timeout) {
                                   beast::http::async_read(stream, buffer, parser, done);
                                 }
                               });
    });
    while (!io.stopped()) {
      io.run_for(kLookForCancel);
      if (cancelled != nullptr && !io.stopped() && cancelled()) {
        return absl::CancelledError("the request is no longer needed");
      }
    }
    if (error) return Failure(error);

    Response response;
    response.code = static_cast<int>(parser.get().result_int());
    response.body = std::move(parser.get().body().text);
    return response;
  } catch (const std::exception& error) {
    return absl::UnavailableError(error.what());
  }
}

}  // namespace tandem::http
