#include "common/http/request_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/optional.hpp>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/http/limited_body.h"

namespace tandem::http {

namespace asio = boost::asio;
namespace beast = boost::beast;

namespace {

// The shortest end of a chunked body, "0\r\n\r\n". Beast 1.74 aborts if it is given a part of it.
constexpr size_t kMinChunkedBytes = 5;

std::string ToString(beast::string_view text) { return std::string(text.data(), text.size()); }

}  // namespace

struct RequestReader::Parser {
  beast::http::request_parser<LimitedBody> beast;
};

RequestReader::RequestReader(size_t max_head_bytes)
    : max_head_bytes_(max_head_bytes), parser_(std::make_unique<Parser>()) {
  parser_->beast.header_limit(static_cast<std::uint32_t>(max_head_bytes));
  // ExpectBody() sets the real limit once the head is known.
  parser_->beast.body_limit(std::numeric_limits<std::uint64_t>::max());
}

RequestReader::~RequestReader() = default;

size_t RequestReader::size_bytes() const {
  return pending_.size() + parser_->beast.get().body().text.size() + request_.body.size();
}

void RequestReader::Drop() {
  for (std::string* held : {&pending_, &parser_->beast.get().body().text, &request_.body}) {
    std::string().swap(*held);
  }
}

RequestReader::State RequestReader::Fail(int code, const char* reason, std::string message) {
  error_ = {code, reason, std::move(message)};
  return state_ = State::kFailed;
}

RequestReader::State RequestReader::ReadHead() {
  const auto& head = parser_->beast.get();
  request_.method = ToString(head.method_string());
  request_.http_1_0 = head.version() == 10;
  for (const auto& field : head) {
    request_.headers.emplace_back(ToString(field.name_string()), ToString(field.value()));
  }
  const std::string target = ToString(head.target());
  const size_t query = std::min(target.find('?'), target.size());
  std::optional<std::string> path =
      PercentDecode(absl::string_view(target).substr(0, query), /*plus_is_space=*/false);
  if (!path.has_value() || (path->rfind('/', 0) != 0 && *path != "*")) {
    return Fail(400, "BAD_REQUEST", "expected a request target that is a path beginning with /");
  }
  request_.path = *std::move(path);
  if (query < target.size()) request_.query = target.substr(query + 1);
  if (request_.CountHeader("Host") > 1 || (!request_.http_1_0 && !request_.Header("Host"))) {
    return Fail(400, "BAD_REQUEST", "expected one Host header");
  }
  return state_ = State::kHeadDone;
}

bool RequestReader::ExpectBody(size_t max_bytes) {
  auto& parser = parser_->beast;
  parser.get().body().max_bytes = max_bytes;
  if (const auto length = parser.content_length(); length && *length > max_bytes) {
    Fail(413, "REQUEST_TOO_LARGE",
         absl::StrCat("the request's body has ", *length, " bytes; the limit is ", max_bytes,
                      " bytes; send several requests"));
    return false;
  }
  state_ = State::kBody;
  return true;
}

RequestReader::State RequestReader::Feed(std::string_view bytes) {
  if (state_ == State::kDone || state_ == State::kFailed) return state_;
  started_ = started_ || !bytes.empty();
  pending_.append(bytes);
  if (state_ == State::kHeadDone) return state_;
  auto& parser = parser_->beast;
  size_t used = 0;
  beast::error_code error;
  const auto left = [&] { return pending_.size() - used; };
  while (!parser.is_done() && left() > 0 && !error) {
    const bool in_head = !parser.is_header_done();
    if (!in_head && parser.chunked() && left() < kMinChunkedBytes) break;
    used += parser.put(asio::buffer(pending_.data() + used, left()), error);
    if (in_head && !error && parser.is_header_done()) {
      pending_.erase(0, used);
      return ReadHead();
    }
  }
  pending_.erase(0, used);
  if (error == beast::http::error::need_more) {
    // Body bytes are consumed as they arrive: the rest is part of the head, of a chunk's head or of
    // the trailer.
    if (pending_.size() <= max_head_bytes_) return state_;
    error = beast::http::error::header_limit;
  }
  if (error == beast::http::error::header_limit || error == beast::http::error::buffer_overflow) {
    return Fail(431, "HEAD_TOO_LARGE",
                absl::StrCat("the request's head has more than ", max_head_bytes_, " bytes"));
  }
  if (error == beast::http::error::body_limit) {
    return Fail(413, "REQUEST_TOO_LARGE",
                absl::StrCat("the request's body has more than ", parser.get().body().max_bytes,
                             " bytes; send several requests"));
  }
  if (error) {
    return Fail(400, "BAD_REQUEST", absl::StrCat("not an HTTP/1.1 request: ", error.message()));
  }
  if (parser.is_done()) {
    request_.body = std::exchange(parser.get().body().text, {});
    excess_ = !std::exchange(pending_, {}).empty();
    state_ = State::kDone;
  }
  return state_;
}

}  // namespace tandem::http
