#include "tools/tandem/view/view_server.h"

#include <algorithm>
#include <iterator>
#include <string_view>
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

Content Text(const char* type, std::string_view bytes) {
  return {absl::StrCat("text/", type, "; charset=utf-8"), std::string(bytes)};
}

// The parts of the page, by their path.
absl::StatusOr<Content> FindPart(const std::string& path) {
  if (path == "/") return Text("html", IndexHtml());
  if (path == "/view.css") return Text("css", ViewCss());
  struct Script {
    const char* path;
    std::string_view (*bytes)();
  };
  static constexpr Script kScripts[] = {{"/view.js", ViewJs},        {"/dom.js", DomJs},
                                        {"/runs.js", RunsJs},        {"/charts.js", ChartsJs},
                                        {"/curves.js", CurvesJs},    {"/colours.js", ColoursJs},
                                        {"/samples.js", SamplesJs},  {"/attention.js", AttentionJs},
                                        {"/pictures.js", PicturesJs}};
  for (const Script& script : kScripts) {
    if (path == script.path) return Text("javascript", script.bytes());
  }
  return absl::NotFoundError("no such page");
}

Content Statuses(const std::vector<ViewedRun>& runs) {
  nlohmann::json out = nlohmann::json::array();
  for (const ViewedRun& run : runs) {
    const absl::StatusOr<nlohmann::json> status = run.reader->Status();
    nlohmann::json line =
        status.ok() ? *status : nlohmann::json{{"error", std::string(status.status().message())}};
    line["name"] = run.name;
    out.push_back(std::move(line));
  }
  return Json({{"runs", std::move(out)}});
}

absl::StatusOr<SampleSet> SetOf(const http::Request& request) {
  const std::string name = request.QueryValue("set").value_or("");
  if (name == "rollouts") return SampleSet::kRollouts;
  if (name == "evaluations") return SampleSet::kEvaluations;
  return absl::InvalidArgumentError("expected set=rollouts or set=evaluations in the query");
}

// What the page asks of one run.
absl::StatusOr<Content> FindOfRun(const http::Request& request, const ViewedRun& run) {
  const std::string& path = request.path;
  nlohmann::json found;
  if (path == "/api/config") {
    ASSIGN_OR_RETURN(found, run.reader->Config());
    return Json(found);
  }
  if (path == "/api/metrics") {
    ASSIGN_OR_RETURN(const int64_t generation, Number(request, "generation"));
    ASSIGN_OR_RETURN(const int64_t from, Number(request, "from"));
    ASSIGN_OR_RETURN(found, run.reader->Metrics(generation, from));
    return Json(found);
  }
  ASSIGN_OR_RETURN(const SampleSet set, SetOf(request));
  if (path == "/api/steps") {
    ASSIGN_OR_RETURN(const int64_t after, Number(request, "after"));
    return Json(run.reader->Steps(set, after));
  }
  ASSIGN_OR_RETURN(const int64_t step, Number(request, "step"));
  if (path == "/api/samples") {
    ASSIGN_OR_RETURN(const int64_t offset, Number(request, "offset"));
    if (offset < 0) return absl::InvalidArgumentError("expected offset >= 0 in the query");
    ASSIGN_OR_RETURN(found, run.reader->Samples(set, step, offset));
    return Json(found);
  }
  if (path == "/api/image") {
    ASSIGN_OR_RETURN(ServedImage image,
                     run.reader->Image(set, step, request.QueryValue("sha256").value_or("")));
    return Content{std::move(image.media_type), std::move(image.bytes)};
  }
  ASSIGN_OR_RETURN(const int64_t sample, Number(request, "sample"));
  if (path == "/api/inspect") {
    ASSIGN_OR_RETURN(found, run.inspector->Inspect({set, step, sample}));
    return Json(found);
  }
  ASSIGN_OR_RETURN(const int64_t layer, Number(request, "layer"));
  ASSIGN_OR_RETURN(std::string bytes, run.inspector->Attention({set, step, sample}, layer));
  return Content{"application/octet-stream", std::move(bytes)};
}

absl::StatusOr<Content> Find(const http::Request& request, const std::vector<ViewedRun>& runs) {
  if (request.path == "/api/runs") return Statuses(runs);
  constexpr std::string_view kOfRun[] = {"/api/config",   "/api/metrics", "/api/steps",
                                         "/api/samples",  "/api/image",   "/api/inspect",
                                         "/api/attention"};
  if (std::find(std::begin(kOfRun), std::end(kOfRun), request.path) == std::end(kOfRun)) {
    return FindPart(request.path);
  }
  ASSIGN_OR_RETURN(const int64_t run, Number(request, "run"));
  if (run < 0 || run >= static_cast<int64_t>(runs.size())) {
    return absl::OutOfRangeError(
        absl::StrCat("run ", run, ": the page shows runs 0 to ", runs.size() - 1));
  }
  return FindOfRun(request, runs[run]);
}

int HttpCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
      return 404;
    case absl::StatusCode::kUnimplemented:
      return 501;
    default:
      return 500;
  }
}

http::Response Page(int code, Content content) {
  http::Response response;
  response.code = code;
  response.content_type = std::move(content.type);
  response.headers = {
      {"Content-Security-Policy",
       "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
       "frame-ancestors 'none'"}};
  response.body = std::move(content.bytes);
  return response;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ViewServer>> ViewServer::Start(const std::string& listen,
                                                              std::vector<ViewedRun> runs) {
  ASSIGN_OR_RETURN(net::HostPort address, net::ParseListenAddress(listen));
  std::unique_ptr<ViewServer> out(new ViewServer(std::move(runs)));
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
  absl::StatusOr<Content> content = Find(exchange.request(), runs_);
  if (content.ok()) return exchange.Reply(Page(200, *std::move(content)));
  exchange.Reply(Page(HttpCode(content.status()),
                      {"text/plain; charset=utf-8", std::string(content.status().message())}));
}

}  // namespace tandem::view
