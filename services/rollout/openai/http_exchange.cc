#include "services/rollout/openai/http_exchange.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "services/rollout/openai/api_error.h"

namespace tandem::rollout::openai {
namespace {

// Deeper than any request; recursion over it stays small.
constexpr int kMaxDepth = 64;

int Depth(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

absl::Status TooLarge(size_t max_bytes) {
  return rpc::WithReason(
      absl::OutOfRangeError(absl::StrCat("the request's body has more than ", max_bytes,
                                         " bytes; send the prompts in several requests")),
      kRequestTooLarge);
}

}  // namespace

HttpExchange::HttpExchange(mg_connection* connection)
    : connection_(connection),
      info_(*mg_get_request_info(connection)),
      chunked_(std::string_view(info_.http_version) != "1.0"),
      socket_(info_.remote_addr, info_.remote_port, info_.server_port) {}

absl::StatusOr<std::string> HttpExchange::ReadBody(size_t max_bytes) {
  if (info_.content_length > static_cast<long long>(max_bytes)) return TooLarge(max_bytes);
  if (const char* expect = Header("Expect");
      expect != nullptr && absl::EqualsIgnoreCase(expect, "100-continue")) {
    Write("HTTP/1.1 100 Continue\r\n\r\n");
  }
  std::string body;
  std::string buffer(65536, '\0');
  while (true) {
    const int got = mg_read(connection_, buffer.data(), buffer.size());
    if (got < 0) {
      return absl::InvalidArgumentError("the request's body ended, or paused, before its end");
    }
    if (got == 0) break;
    if (body.size() + got > max_bytes) return TooLarge(max_bytes);
    body.append(buffer.data(), got);
  }
  if (info_.content_length >= 0 && body.size() != static_cast<size_t>(info_.content_length)) {
    return absl::InvalidArgumentError(absl::StrCat("expected a body of ", info_.content_length,
                                                   " bytes, as Content-Length says, found ",
                                                   body.size()));
  }
  return body;
}

absl::StatusOr<nlohmann::ordered_json> HttpExchange::ReadJson(size_t max_bytes) {
  const char* type = Header("Content-Type");
  // A web page can send other types to an address of this machine without asking.
  if (type == nullptr || !absl::StartsWithIgnoreCase(type, "application/json")) {
    return rpc::WithReason(
        absl::InvalidArgumentError(absl::StrCat("expected Content-Type: application/json, found ",
                                                type == nullptr ? "none" : type)),
        kUnsupportedMediaType);
  }
  ASSIGN_OR_RETURN(const std::string body, ReadBody(max_bytes));
  if (Depth(body) > kMaxDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body nests deeper than ", kMaxDepth, " levels"));
  }
  try {
    nlohmann::ordered_json parsed = nlohmann::ordered_json::parse(body);
    if (parsed.is_object()) return parsed;
  } catch (const nlohmann::ordered_json::parse_error& error) {
    return absl::InvalidArgumentError(absl::StrCat("the body is no JSON: ", error.what()));
  }
  return absl::InvalidArgumentError("expected a JSON object as the body");
}

bool HttpExchange::Write(std::string_view bytes) {
  if (!gone_ &&
      mg_write(connection_, bytes.data(), bytes.size()) < static_cast<int>(bytes.size())) {
    gone_ = true;
  }
  return !gone_;
}

std::string HttpExchange::Head(int code, absl::string_view content_type, const Headers& headers) {
  code_ = code;
  std::string head =
      absl::StrCat("HTTP/1.1 ", code, " ", mg_get_response_code_text(connection_, code),
                   "\r\nContent-Type: ", content_type,
                   "\r\nConnection: close\r\nCache-Control: no-store\r\n"
                   "X-Content-Type-Options: nosniff\r\n");
  for (const auto& [name, value] : headers) absl::StrAppend(&head, name, ": ", value, "\r\n");
  return head;
}

void HttpExchange::Reply(int code, const nlohmann::ordered_json& body, const Headers& headers) {
  const std::string text = Dump(body);
  Write(absl::StrCat(Head(code, "application/json", headers), "Content-Length: ", text.size(),
                     "\r\n\r\n", text));
}

void HttpExchange::ReplyError(const absl::Status& status) {
  const int code = HttpCode(status);
  Headers headers;
  if (MayRetry(code)) headers.push_back({"Retry-After", "1"});
  if (code == 401) headers.push_back({"WWW-Authenticate", "Bearer"});
  Reply(code, ErrorBody(status), headers);
}

bool HttpExchange::BeginEvents(const Headers& headers) {
  return Write(absl::StrCat(Head(200, "text/event-stream; charset=utf-8", headers),
                            chunked_ ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n"));
}

bool HttpExchange::SendEvent(absl::string_view data) {
  const std::string event = absl::StrCat("data: ", data, "\n\n");
  // In one write: the next packet would wait until this one is acknowledged.
  return Write(chunked_ ? absl::StrCat(absl::StrFormat("%x\r\n", event.size()), event, "\r\n")
                        : event);
}

void HttpExchange::EndEvents() {
  if (chunked_) Write("0\r\n\r\n");
}

}  // namespace tandem::rollout::openai
