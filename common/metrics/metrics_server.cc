#include "common/metrics/metrics_server.h"

#include <prometheus/text_serializer.h>

#include <iterator>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/host_port.h"
#include "common/telemetry/log.h"

namespace tandem::metrics {
namespace {

constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& listen, ProcessMetrics::Identity identity) {
  if (const auto address = net::ParseListenAddress(listen); !address.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics: cannot listen: ", address.status().message(),
                     "; for instance 0.0.0.0:9400 or 127.0.0.1:0"));
  }
  std::unique_ptr<MetricsServer> out(new MetricsServer);
  out->Add(std::make_shared<ProcessMetrics>(std::move(identity)));
  http::Options options;
  options.listen = listen;
  options.limits.max_connections = 512;
  absl::StatusOr<std::unique_ptr<http::Server>> server = http::Server::Start(options, *out);
  if (absl::IsUnavailable(server.status())) {
    return absl::UnavailableError(absl::StrCat("metrics: cannot listen on ", listen,
                                               "; stop what uses the port, or choose another (",
                                               server.status().message(), ")"));
  }
  if (!server.ok()) return server.status();
  out->server_ = *std::move(server);
  telemetry::LogInfo("serving metrics", {{"address", out->address()}, {"path", "/metrics"}});
  return out;
}

MetricsServer::~MetricsServer() = default;

void MetricsServer::Add(std::shared_ptr<prometheus::Collectable> collectable) {
  absl::MutexLock lock(&mu_);
  collectables_.push_back(std::move(collectable));
}

http::Admission MetricsServer::Admit(const http::Request& head) {
  http::Admission admission;
  if (head.path != "/metrics") {
    admission.refusal = Refuse({404, "NOT_FOUND", "no such page; see /metrics"});
  } else if (head.method != "GET") {
    admission.refusal = Refuse({405, "METHOD_NOT_ALLOWED", "/metrics supports GET only"});
  }
  return admission;
}

void MetricsServer::Serve(http::Exchange& exchange) {
  std::vector<std::shared_ptr<prometheus::Collectable>> collectables;
  {
    absl::MutexLock lock(&mu_);
    collectables = collectables_;
  }
  std::vector<prometheus::MetricFamily> families;
  for (const auto& collectable : collectables) {
    std::vector<prometheus::MetricFamily> some = collectable->Collect();
    families.insert(families.end(), std::make_move_iterator(some.begin()),
                    std::make_move_iterator(some.end()));
  }
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families);
  http::Response response;
  response.content_type = kContentType;
  response.body = text.str();
  exchange.Reply(std::move(response));
}

}  // namespace tandem::metrics
