#include "common/http/message.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tandem::http {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = absl::ascii_tolower(static_cast<unsigned char>(c));
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

const std::string* Request::Header(absl::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (absl::EqualsIgnoreCase(key, name)) return &value;
  }
  return nullptr;
}

int Request::CountHeader(absl::string_view name) const {
  return static_cast<int>(std::count_if(headers.begin(), headers.end(), [&](const auto& header) {
    return absl::EqualsIgnoreCase(header.first, name);
  }));
}

std::optional<std::string> Request::QueryValue(absl::string_view name) const {
  for (const absl::string_view item : absl::StrSplit(query, '&')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(item, absl::MaxSplits('=', 1));
    if (parts.first == name) return PercentDecode(parts.second, /*plus_is_space=*/true);
  }
  return std::nullopt;
}

absl::string_view ReasonPhrase(int code) {
  switch (code) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 421:
      return "Misdirected Request";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return code < 400 ? "OK" : "Error";
  }
}

std::string SerializeHead(const Response& response, const Headers& framing) {
  std::string head = absl::StrCat("HTTP/1.1 ", response.code, " ", ReasonPhrase(response.code),
                                  "\r\nContent-Type: ", response.content_type,
                                  "\r\nConnection: close\r\nCache-Control: no-store\r\n"
                                  "X-Content-Type-Options: nosniff\r\n"
                                  "Cross-Origin-Resource-Policy: same-origin\r\n");
  for (const Headers* headers : {&response.headers, &framing}) {
    for (const auto& [name, value] : *headers) absl::StrAppend(&head, name, ": ", value, "\r\n");
  }
  return absl::StrCat(head, "\r\n");
}

std::optional<std::string> PercentDecode(absl::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '+' && plus_is_space) c = ' ';
    if (c == '%') {
      const int high = i + 2 < text.size() ? HexDigit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? HexDigit(text[i + 2]) : -1;
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) return std::nullopt;
    out.push_back(c);
  }
  return out;
}

}  // namespace tandem::http
