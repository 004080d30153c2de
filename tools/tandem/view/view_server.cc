#include "tools/tandem/view/view_server.h"

#include <civetweb.h>

#include <cstring>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status/status_macros.h"
#include "view_page.h"

namespace tandem::view {
namespace {

struct Content {
  std::string type;
  std::string bytes;
};

absl::StatusOr<int64_t> Number(const mg_request_info& request, const char* name) {
  char text[32];
  int64_t value = 0;
  const char* const query = request.query_string == nullptr ? "" : request.query_string;
  if (mg_get_var(query, std::strlen(query), name, text, sizeof(text)) <= 0 ||
      !absl::SimpleAtoi(text, &value)) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", name, "=NUMBER in the query"));
  }
  return value;
}

Content Json(const nlohmann::json& value) {
  // Rows may hold bytes that are no UTF-8.
  return {"application/json", value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

absl::StatusOr<Content> Find(const mg_request_info& request, RunReader& reader,
                             Inspector& inspector) {
  const std::string_view path = request.local_uri;
  if (path == "/") return Content{"text/html; charset=utf-8", std::string(IndexHtml())};
  if (path == "/view.css") return Content{"text/css; charset=utf-8", std::string(ViewCss())};
  if (path == "/view.js") return Content{"text/javascript; charset=utf-8", std::string(ViewJs())};
  if (path == "/api/run") {
    ASSIGN_OR_RETURN(const nlohmann::json run, reader.Run());
    return Json(run);
  }
  if (path == "/api/metrics") {
    ASSIGN_OR_RETURN(const int64_t after, Number(request, "after"));
    ASSIGN_OR_RETURN(const nlohmann::json lines, reader.Metrics(after));
    return Json(lines);
  }
  if (path == "/api/rollouts") {
    ASSIGN_OR_RETURN(const int64_t step, Number(request, "step"));
    ASSIGN_OR_RETURN(const nlohmann::json samples, reader.Rollouts(step));
    return Json(samples);
  }
  if (path == "/api/inspect" || path == "/api/attention") {
    ASSIGN_OR_RETURN(const int64_t step, Number(request, "step"));
    ASSIGN_OR_RETURN(const int64_t sample, Number(request, "sample"));
    if (path == "/api/inspect") {
      ASSIGN_OR_RETURN(const nlohmann::json found, inspector.Inspect(step, sample));
      return Json(found);
    }
    ASSIGN_OR_RETURN(const int64_t layer, Number(request, "layer"));
    ASSIGN_OR_RETURN(std::string bytes, inspector.Attention(step, sample, layer));
    return Content{"application/octet-stream", std::move(bytes)};
  }
  return absl::NotFoundError("there is no such page");
}

int HttpCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
      return 404;
    default:
      return 500;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ViewServer>> ViewServer::Start(const std::string& listen,
                                                              RunReader& reader,
                                                              Inspector& inspector) {
  mg_init_library(0);
  std::unique_ptr<ViewServer> out(new ViewServer(reader, inspector));
  const char* options[] = {"listening_ports",    listen.c_str(), "num_threads", "4",
                           "request_timeout_ms", "10000",        nullptr};
  out->context_ = mg_start(nullptr, nullptr, options);
  if (out->context_ == nullptr) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", listen, "; stop what uses the port, or choose another with --port"));
  }
  mg_server_port port;
  if (mg_get_server_ports(out->context_, 1, &port) == 1) out->port_ = port.port;
  out->url_ = absl::StrCat("http://", listen.substr(0, listen.rfind(':')), ":", out->port_, "/");
  mg_set_request_handler(
      out->context_, "/",
      [](mg_connection* connection, void* self) {
        return static_cast<const ViewServer*>(self)->Answer(connection);
      },
      out.get());
  return out;
}

ViewServer::~ViewServer() {
  if (context_ != nullptr) mg_stop(context_);
}

int ViewServer::Answer(mg_connection* connection) const {
  const mg_request_info& request = *mg_get_request_info(connection);
  absl::StatusOr<Content> content = std::string_view(request.request_method) == "GET"
                                        ? Find(request, reader_, inspector_)
                                        : absl::InvalidArgumentError("only GET is answered");
  const int code = content.ok() ? 200 : HttpCode(content.status());
  if (!content.ok()) {
    content = Content{"text/plain; charset=utf-8", std::string(content.status().message())};
  }
  mg_printf(
      connection,
      "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
      "Content-Security-Policy: default-src 'self'; img-src data:; style-src 'self' "
      "'unsafe-inline'\r\nX-Content-Type-Options: nosniff\r\n\r\n",
      code, mg_get_response_code_text(connection, code), content->type.c_str(),
      content->bytes.size());
  mg_write(connection, content->bytes.data(), content->bytes.size());
  return code;
}

}  // namespace tandem::view
