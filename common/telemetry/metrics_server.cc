#include "common/telemetry/metrics_server.h"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/host_port.h"
#include "common/telemetry/log.h"

namespace tandem::telemetry {

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& listen, ProcessMetrics::Identity identity) {
  absl::StatusOr<net::HostPort> address = net::ParseListenAddress(listen);
  if (!address.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics: cannot listen: ", address.status().message(),
                     "; for instance 0.0.0.0:9400 or 127.0.0.1:0"));
  }
  std::unique_ptr<MetricsServer> out(new MetricsServer);
  try {
    out->exposer_ = std::make_unique<prometheus::Exposer>(listen);
    const std::vector<int> ports = out->exposer_->GetListeningPorts();
    if (!ports.empty()) address->port = ports.front();
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("metrics: cannot listen on ", listen,
                                               "; stop what uses the port, or choose another (",
                                               error.what(), ")"));
  }
  out->address_ = address->ToString();
  out->Add(std::make_shared<ProcessMetrics>(std::move(identity)));
  LogInfo("metrics are served", {{"address", out->address_}, {"path", "/metrics"}});
  return out;
}

void MetricsServer::Add(std::shared_ptr<prometheus::Collectable> collectable) {
  exposer_->RegisterCollectable(collectable);
  collectables_.push_back(std::move(collectable));
}

}  // namespace tandem::telemetry
