// A connection between each pair of ranks of a group, made by way of the rendezvous store: every
// rank listens, says in the store where, with a nonce, and connects to the lower ones. Who connects
// shows a proof, by the group's secret, of what it read there; others are refused, named and
// counted.
#ifndef TANDEM_COMMON_COMM_LINK_MESH_H_
#define TANDEM_COMMON_COMM_LINK_MESH_H_

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/comm/store_connection.h"
#include "common/status/file_descriptor.h"

namespace tandem::comm {

// A kind of sockets. All of them do not block.
class LinkFamily {
 public:
  struct Listener {
    FileDescriptor fd;
    std::string address;  // bytes, for Connect()
  };

  virtual ~LinkFamily() = default;
  virtual absl::StatusOr<Listener> Listen(int backlog) = 0;
  virtual absl::StatusOr<FileDescriptor> Connect(const std::string& address, absl::Time deadline,
                                                 const Cancelled& cancelled) = 0;
  // Looks at a connection that was accepted, before it has said anything: false refuses it.
  virtual bool Admit(const FileDescriptor& fd) = 0;
  // Who connected from an address that accept4() gave, for errors.
  virtual std::string NameOf(const sockaddr_storage& peer, socklen_t length) const = 0;
};

// By rank; the own one is not open. Errors: DEADLINE_EXCEEDED, which tells of refused strangers;
// CANCELLED; UNAVAILABLE.
absl::StatusOr<std::vector<FileDescriptor>> ConnectMesh(LinkFamily& family, int rank, int size,
                                                        StoreConnection& store, absl::Time deadline,
                                                        const Cancelled& cancelled);

// Waits until the socket is ready for `events`; `what` begins the error's message.
absl::Status AwaitSocket(const FileDescriptor& fd, short events, absl::Time deadline,
                         const Cancelled& cancelled, absl::string_view what);

// UNAVAILABLE with what errno says.
absl::Status SocketError(absl::string_view what);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_LINK_MESH_H_
