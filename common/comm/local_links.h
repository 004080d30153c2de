// LocalLinks: a connection between each pair of ranks on one host. It passes file descriptors of
// memory between processes, and shows when a process ends, because the system then closes it.
#ifndef TANDEM_COMMON_COMM_LOCAL_LINKS_H_
#define TANDEM_COMMON_COMM_LOCAL_LINKS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/comm/store_connection.h"
#include "common/host/file_descriptor.h"

namespace tandem::comm {

// One thread at a time, except Ended().
class LocalLinks {
 public:
  // Identifies the scope within which ranks can connect: equal on two ranks that share a running
  // system, a network namespace and a user. Empty if it cannot be determined.
  static std::string Place();

  // Connects to every other rank. Errors: DEADLINE_EXCEEDED, CANCELLED, UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<LocalLinks>> Connect(int rank, int size,
                                                             StoreConnection& store,
                                                             absl::Time deadline,
                                                             const Cancelled& cancelled);

  // Sends `file` to every other rank.
  absl::Status SendFile(const host::FileDescriptor& file, absl::Time deadline,
                        const Cancelled& cancelled);
  // Receives the file that rank `from` sends with SendFile().
  absl::StatusOr<host::FileDescriptor> ReceiveFile(int from, absl::Time deadline,
                                                   const Cancelled& cancelled);

  // Sends `file`, identified by `id`, to rank `to`; false if that would block.
  bool Hand(int to, const host::FileDescriptor& file, uint64_t id);
  // Returns the next file that rank `from` sent with Hand(), if one has arrived. UNAVAILABLE if the
  // link is broken.
  absl::StatusOr<std::optional<std::pair<uint64_t, host::FileDescriptor>>> TakeHanded(int from);

  // Bit mask of ranks whose end of the link is closed. Costs a system call. Any thread.
  uint64_t Ended() const;

 private:
  explicit LocalLinks(std::vector<host::FileDescriptor> links) : links_(std::move(links)) {}

  std::vector<host::FileDescriptor> links_;  // by rank; this rank's own is not open
};

// Connects a non-blocking stream socket between each pair of ranks with the same Place(). Returns
// them by rank; this rank's own is not open. They cost about half as much per byte as TCP within a
// host. Errors: those of LocalLinks::Connect().
absl::StatusOr<std::vector<host::FileDescriptor>> ConnectLocalStreams(int rank, int size,
                                                                      StoreConnection& store,
                                                                      absl::Time deadline,
                                                                      const Cancelled& cancelled);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_LOCAL_LINKS_H_
