#include "common/comm/store_listener.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/comm/acceptor.h"
#include "common/comm/address_name.h"
#include "common/net/listener.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"

namespace tandem::comm {
namespace {

constexpr absl::Duration kResolvePause = absl::Milliseconds(200);

absl::StatusOr<std::vector<net::SocketAddress>> ResolveInTime(const net::HostPort& address,
                                                              absl::Time deadline) {
  while (true) {
    absl::StatusOr<std::vector<net::SocketAddress>> addresses = net::Resolve(address);
    if (addresses.ok()) return addresses;
    if (absl::Now() + kResolvePause >= deadline) {
      return absl::UnavailableError(
          absl::StrCat("store: cannot resolve ", address.host, ": ", addresses.status().message()));
    }
    absl::SleepFor(kResolvePause);
  }
}

}  // namespace

absl::StatusOr<StoreListener> ListenForStore(const std::string& host, int port,
                                             absl::Time deadline) {
  ASSIGN_OR_RETURN(std::vector<net::SocketAddress> addresses,
                   ResolveInTime({host, port}, deadline));
  const bool means_itself =
      net::IsNumber({host, port}) || host == "localhost" || absl::EndsWith(host, ".localhost");
  if (!means_itself && std::all_of(addresses.begin(), addresses.end(),
                                   [](const auto& address) { return address.is_loopback(); })) {
    addresses.clear();
  }
  StoreListener out;
  out.port = port;
  for (net::SocketAddress& address : addresses) {
    address.set_port(out.port);
    absl::StatusOr<net::Listener> listener = net::Listen(address, kListenBacklog);
    if (absl::IsNotFound(listener.status())) continue;
    RETURN_IF_ERROR(listener.status())
        << "store: cannot listen at " << AddressName(address.bytes, address.length);
    out.port = listener->address.port();
    out.sockets.push_back(std::move(listener->fd));
  }
  if (!out.sockets.empty()) return out;
  telemetry::LogWarning("the rendezvous store listens at every interface: none has its address",
                        {{"address", host}, {"port", port}});
  absl::StatusOr<net::Listener> listener = net::ListenEverywhere(port, kListenBacklog);
  RETURN_IF_ERROR(listener.status()) << "store: cannot listen at port " << port;
  out.everywhere = true;
  out.port = listener->address.port();
  out.sockets.push_back(std::move(listener->fd));
  return out;
}

}  // namespace tandem::comm
