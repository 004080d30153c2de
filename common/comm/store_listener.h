// Opens the rendezvous store's listening sockets, only at the address that clients use if possible.
#ifndef TANDEM_COMMON_COMM_STORE_LISTENER_H_
#define TANDEM_COMMON_COMM_STORE_LISTENER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/host/file_descriptor.h"

namespace tandem::comm {

struct StoreListener {
  std::vector<host::FileDescriptor> sockets;  // one per address; non-blocking
  int port = 0;
  bool everywhere = false;  // listens on every interface
};

// Listens at the addresses of `host` (a name or a number) that belong to this host; `port` 0 means
// any. Listens on every interface if none of them does (behind a load balancer or NAT), or if a
// name other than localhost resolves to loopback: many systems' /etc/hosts maps the host's own name
// so, while other hosts resolve it to another address. Retries resolving the name until `deadline`,
// because a pod's name resolves only some time after the pod starts. UNAVAILABLE names the address
// that cannot be bound.
absl::StatusOr<StoreListener> ListenForStore(const std::string& host, int port,
                                             absl::Time deadline);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_STORE_LISTENER_H_
