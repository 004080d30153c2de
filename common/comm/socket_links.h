// Makes TCP connections between each pair of ranks (link_mesh.h).
#ifndef TANDEM_COMMON_COMM_SOCKET_LINKS_H_
#define TANDEM_COMMON_COMM_SOCKET_LINKS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/comm/link_mesh.h"

namespace tandem::comm {

// Returns connections by rank, as ConnectMesh() does. `host`: this host's numeric address for
// peers; this rank listens only there.
absl::StatusOr<std::vector<host::FileDescriptor>> ConnectSockets(const std::string& host, int rank,
                                                                 int size, StoreConnection& store,
                                                                 absl::Time deadline,
                                                                 const Cancelled& cancelled);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_SOCKET_LINKS_H_
