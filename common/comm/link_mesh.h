// Connects each pair of ranks of a group through the rendezvous store: every rank listens,
// publishes its address and a nonce in the store, and connects to the lower ranks. The connecting
// rank sends a proof made with the group's secret from what it read; connections without a valid
// proof are refused, named in errors and counted.
#ifndef TANDEM_COMMON_COMM_LINK_MESH_H_
#define TANDEM_COMMON_COMM_LINK_MESH_H_

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/comm/store_connection.h"
#include "common/host/file_descriptor.h"

namespace tandem::comm {

// A kind of socket (TCP, local). All its sockets are non-blocking.
class LinkFamily {
 public:
  struct Listener {
    host::FileDescriptor fd;
    std::string address;  // bytes, for Connect()
  };

  virtual ~LinkFamily() = default;
  virtual absl::StatusOr<Listener> Listen(int backlog) = 0;
  virtual absl::StatusOr<host::FileDescriptor> Connect(const std::string& address,
                                                       absl::Time deadline,
                                                       const Cancelled& cancelled) = 0;
  // Checks an accepted connection before it has sent anything; false refuses it.
  virtual bool Admit(const host::FileDescriptor& fd) = 0;
  // Names the peer of an accept4() address, for errors.
  virtual std::string NameOf(const sockaddr_storage& peer, socklen_t length) const = 0;
};

// Returns connections by rank; this rank's own is not open. Errors: DEADLINE_EXCEEDED, which names
// refused connections; CANCELLED; UNAVAILABLE.
absl::StatusOr<std::vector<host::FileDescriptor>> ConnectMesh(LinkFamily& family, int rank,
                                                              int size, StoreConnection& store,
                                                              absl::Time deadline,
                                                              const Cancelled& cancelled);

// Waits until the socket is ready for `events`; error messages start with `what`.
absl::Status AwaitSocket(const host::FileDescriptor& fd, short events, absl::Time deadline,
                         const Cancelled& cancelled, absl::string_view what);

// UNAVAILABLE with errno's text.
absl::Status SocketError(absl::string_view what);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_LINK_MESH_H_
