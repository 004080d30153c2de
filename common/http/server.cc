#include "common/http/server.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/http/host_policy.h"
#include "common/http/server_impl.h"
#include "common/net/host_port.h"
#include "common/net/listener.h"
#include "common/status/exceptions.h"
#include "common/status/status_macros.h"

namespace tandem::http {
namespace {

constexpr int kBacklog = 4096;  // the system cuts it down to net.core.somaxconn

// Fits the limits to this process. Leaves at least a quarter of the connections to requests that
// are not served yet, so that new ones are always read.
Limits Fit(Limits limits) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    const double share = static_cast<double>(files.rlim_cur) * limits.descriptor_share;
    limits.max_connections =
        static_cast<int>(std::clamp<double>(share, 16, std::max(limits.max_connections, 16)));
  }
  const auto fit = [](Lane& lane, int places) {
    lane.num_threads = std::min(lane.num_threads, places);
    lane.max_queued = std::min(lane.max_queued, places - lane.num_threads);
  };
  fit(limits.quick, std::max(limits.max_connections / 8, 1));
  fit(limits.slow, std::max(limits.max_connections * 5 / 8, 1));
  return limits;
}

}  // namespace

Response Handler::Refuse(const Error& error) const {
  Response response;
  response.code = error.code;
  response.body = absl::StrCat(error.message, "\n");
  if (error.code == 429 || error.code == 503) response.headers.push_back({"Retry-After", "1"});
  return response;
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Options& options, Handler& handler) {
  ASSIGN_OR_RETURN(net::HostPort address, net::ParseListenAddress(options.listen));
  ASSIGN_OR_RETURN(HostPolicy policy, HostPolicy::Make(address, AllowedHostsOfEnvironment()));
  ASSIGN_OR_RETURN(std::vector<net::Listener> listeners, net::ListenAtAll(address, kBacklog));
  net::Listener& listener = listeners.front();
  std::unique_ptr<Server> out(new Server);
  out->port_ = address.port = listener.address.port();
  out->address_ = address.ToString();
  try {
    out->impl_ = std::make_unique<Impl>(Fit(options.limits), std::move(policy), handler,
                                        std::move(listener));
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot create an event loop for the port: ", StatusOf(error).message()));
  }
  return out;
}

Server::~Server() = default;

bool Server::AwaitIdle(absl::Time deadline) { return impl_->AwaitIdle(deadline); }

void Server::Stop() { impl_->Stop(); }

}  // namespace tandem::http
