// Where a rendezvous store listens: at the address that its clients are told, and no other.
#ifndef TANDEM_COMMON_COMM_STORE_LISTENER_H_
#define TANDEM_COMMON_COMM_STORE_LISTENER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/status/file_descriptor.h"

namespace tandem::comm {

struct StoreListener {
  std::vector<FileDescriptor> sockets;  // one for each address; they do not block
  int port = 0;
  bool everywhere = false;  // at every interface
};

// Listens at the addresses of `host` (a name or a number) that are this host's; `port` 0 for any.
// At every interface where none is this host's, as behind a load balancer or a translated address,
// or where a name other than localhost stands for loopback here: /etc/hosts of many systems says so
// of the host's own name, which other hosts look up as something else. A name that does not resolve
// is looked up until `deadline`: that of a pod is known some time after it has started.
// UNAVAILABLE names what cannot be listened at.
absl::StatusOr<StoreListener> ListenForStore(const std::string& host, int port,
                                             absl::Time deadline);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_STORE_LISTENER_H_
