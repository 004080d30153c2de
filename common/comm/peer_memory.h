// PeerMemory: memory that ranks on one host lend each other for reading. A message whose bytes lie
// in shareable memory (shareable_memory.h) carries only their location; the receiver copies them
// from there. A segment's descriptor crosses the link once per peer; segments stay mapped until the
// group ends.
#ifndef TANDEM_COMMON_COMM_PEER_MEMORY_H_
#define TANDEM_COMMON_COMM_PEER_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/comm/local_links.h"
#include "common/comm/shareable_memory.h"

namespace tandem::comm {

// Smaller messages are copied into a slot, so that their sender need not wait.
inline constexpr int64_t kLeastLentBytes = int64_t{16} << 10;

// Location of lent bytes, as sent to the reader.
struct LentBytes {
  uint64_t magic = 0;
  uint64_t segment = 0;  // the sender's id for the segment
  int64_t offset = 0;
  int64_t size_bytes = 0;
};

// One thread at a time.
class PeerMemory {
 public:
  // `links` must outlive it.
  explicit PeerMemory(LocalLinks& links) : links_(links) {}

  // Returns where rank `to` finds the bytes; nullopt if they are not shareable, too few, or their
  // segment cannot be sent without blocking.
  std::optional<LentBytes> Lend(int to, const void* data, int64_t size_bytes);

  // Returns the local address of the bytes that rank `from` lends, valid while this object lives.
  // Errors name the rank: INTERNAL if `lent` is corrupt, not of `size_bytes`, outside its segment,
  // or in a segment that was never sent; those of MappedSegment::Map() and of the link.
  absl::StatusOr<const std::byte*> Borrow(int from, const LentBytes& lent, int64_t size_bytes);

 private:
  using Key = std::pair<int, uint64_t>;  // rank, segment

  LocalLinks& links_;
  std::set<Key> handed_;
  std::map<Key, std::unique_ptr<const MappedSegment>> mapped_;
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_PEER_MEMORY_H_
