#include "tools/tandem/view/view_server.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/net/host_port.h"
#include "common/status/status_macros.h"
#include "view_page.h"

namespace tandem::view {
namespace {

struct Content {
  std::string type;
  std::string bytes;
};

absl::StatusOr<int64_t> Number(const http::Request& request, const char* name) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(request.QueryValue(name).value_or(""), &value)) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", name, "=NUMBER in the query"));
  }
  return value;
}

bool AsksTheModel(const http::Request& request) {
  return request.path == "/api/inspect" || request.path == "/api/attention";
}

Content Json(const nlohmann::json& value) {
  // Rows may hold bytes that are no UTF-8.
  return {"application/json", value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

absl::StatusOr<Content> Find(const http::Request& request, RunReader& reader,
                             Inspector& inspector) {
  const std::string& path = request.path;
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
  if (AsksTheModel(request)) {
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
  return absl::NotFoundError("no such page");
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

http::Response Page(int code, Content content) {
  http::Response response;
  response.code = code;
  response.content_type = std::move(content.type);
  response.headers = {{"Content-Security-Policy",
                       "default-src 'self'; img-src data:; style-src 'self' 'unsafe-inline'; "
                       "frame-ancestors 'none'"}};
  response.body = std::move(content.bytes);
  return response;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ViewServer>> ViewServer::Start(const std::string& listen,
                                                              RunReader& reader,
                                                              Inspector& inspector) {
  ASSIGN_OR_RETURN(net::HostPort address, net::ParseListenAddress(listen));
  std::unique_ptr<ViewServer> out(new ViewServer(reader, inspector));
  http::Options options;
  options.listen = listen;
  options.limits.max_connections = 512;
  options.limits.descriptor_share = 0.5;
  options.limits.quick.num_threads = 4;
  options.limits.slow = {.num_threads = 2, .max_queued = 16};
  absl::StatusOr<std::unique_ptr<http::Server>> server = http::Server::Start(options, *out);
  if (absl::IsUnavailable(server.status())) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", listen, "; stop what uses the port, or choose another with --port (",
        server.status().message(), ")"));
  }
  if (!server.ok()) return server.status();
  out->server_ = *std::move(server);
  address.port = out->port();
  out->url_ = absl::StrCat("http://", address.ToString(), "/");
  return out;
}

ViewServer::~ViewServer() = default;

http::Admission ViewServer::Admit(const http::Request& head) {
  http::Admission admission;
  admission.slow = AsksTheModel(head);
  if (head.method != "GET") {
    admission.refusal = Refuse({405, "METHOD_NOT_ALLOWED", "only GET is supported"});
  }
  return admission;
}

http::Response ViewServer::Refuse(const http::Error& error) const {
  return Page(error.code, {"text/plain; charset=utf-8", error.message});
}

void ViewServer::Serve(http::Exchange& exchange) {
  absl::StatusOr<Content> content = Find(exchange.request(), reader_, inspector_);
  if (content.ok()) return exchange.Reply(Page(200, *std::move(content)));
  exchange.Reply(Page(HttpCode(content.status()),
                      {"text/plain; charset=utf-8", std::string(content.status().message())}));
}

}  // namespace tandem::view
