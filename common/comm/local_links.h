// LocalLinks: a connection between each pair of ranks of one host, over which memory is handed from
// process to process, and which the system closes when a process ends, however it ends.
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
#include "common/status/file_descriptor.h"

namespace tandem::comm {

// One thread at a time, but for Ended().
class LocalLinks {
 public:
  // Names the place in which connections can be made: the same on two ranks that share a running
  // system, its network namespace and a user. Empty where it cannot be told.
  static std::string Place();

  // Connects to every other rank. Errors: DEADLINE_EXCEEDED, CANCELLED, UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<LocalLinks>> Connect(int rank, int size,
                                                             StoreConnection& store,
                                                             absl::Time deadline,
                                                             const Cancelled& cancelled);

  // Hands `file` to every other rank.
  absl::Status SendFile(const FileDescriptor& file, absl::Time deadline,
                        const Cancelled& cancelled);
  // Takes what rank `from` hands out.
  absl::StatusOr<FileDescriptor> ReceiveFile(int from, absl::Time deadline,
                                             const Cancelled& cancelled);

  // Hands `file`, known by `id`, to rank `to` if that can be done at once; else answers false.
  bool Hand(int to, const FileDescriptor& file, uint64_t id);
  // The next file that rank `from` has handed to this one, if one is there. UNAVAILABLE where the
  // link is broken.
  absl::StatusOr<std::optional<std::pair<uint64_t, FileDescriptor>>> TakeHanded(int from);

  // Ranks whose end of the link is closed, as bits. Costs a system call. Any thread.
  uint64_t Ended() const;

 private:
  explicit LocalLinks(std::vector<FileDescriptor> links) : links_(std::move(links)) {}

  std::vector<FileDescriptor> links_;  // by rank; its own is not open
};

// A stream socket between each pair of ranks of one place, by rank; the own one is not open. They
// do not block. Bytes cost about half of what they cost over TCP within a host. Errors as
// LocalLinks::Connect().
absl::StatusOr<std::vector<FileDescriptor>> ConnectLocalStreams(int rank, int size,
                                                                StoreConnection& store,
                                                                absl::Time deadline,
                                                                const Cancelled& cancelled);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_LOCAL_LINKS_H_
