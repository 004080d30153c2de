// What a server answers to a request for a picture: a line with the URL, one with the code, headers
// "Name: value" up to an empty line, and the body. Redirects are followed to where the answer leads, which
// answers the same again.
#include "common/images/fetch/image_response.h"

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/http/url.h"
#include "common/images/decode.h"

namespace {

absl::string_view TakeLine(absl::string_view& rest) {
  const size_t end = rest.find('\n');
  const absl::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
  return line;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  absl::string_view rest(reinterpret_cast<const char*>(data), size);
  auto url = tandem::http::ParseFileUrl(TakeLine(rest));
  if (!url.ok()) return 0;
  tandem::http::Response response;
  if (!absl::SimpleAtoi(TakeLine(rest), &response.code)) return 0;
  for (absl::string_view line = TakeLine(rest); !line.empty(); line = TakeLine(rest)) {
    const size_t colon = line.find(": ");
    if (colon == line.npos) continue;
    response.headers.emplace_back(std::string(line.substr(0, colon)),
                                  std::string(line.substr(colon + 2)));
  }
  response.body = std::string(rest);
  for (int hop = 0; hop < 4; ++hop) {
    const auto read = tandem::images::ReadImageResponse(*url, response);
    if (!read.ok()) return 0;
    if (!read->has_value()) break;
    const tandem::http::Url& next = **read;
    // Nothing leads from https to http, and what is connected to next is a URL of its own.
    if (url->tls && !next.tls) std::abort();
    if (next.server.host.empty() || next.server.port < 1 || next.server.port > 65535) std::abort();
    if (!tandem::http::ParseFileUrl(absl::StrCat(next.ToString())).ok()) std::abort();
    url = next;
  }
  if (response.code != 200) return 0;
  // Small, so that an input takes milliseconds.
  const tandem::images::ImageLimits limits = {
      .max_bytes = 1 << 20, .max_pixels = 1 << 14, .max_scanned_pixels = 1 << 18};
  (void)tandem::images::DecodeImage(response.body, "body", limits);
  return 0;
}
