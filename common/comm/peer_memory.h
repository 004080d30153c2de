// PeerMemory: what the ranks of one host lend each other to read: a message whose bytes lie in
// shareable memory (shareable_memory.h) travels as the place where they are, and its receiver
// copies them from there. A segment's descriptor goes over the link once for each peer; what was
// mapped stays so until the group is left.
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

// Messages of fewer bytes are copied into a slot, so that their sender need not wait.
inline constexpr int64_t kLeastLentBytes = int64_t{16} << 10;

// Where lent bytes are, as it travels.
struct LentBytes {
  uint64_t magic = 0;
  uint64_t segment = 0;  // of the sender
  int64_t offset = 0;
  int64_t size_bytes = 0;
};

// One thread at a time.
class PeerMemory {
 public:
  // `links` outlive it.
  explicit PeerMemory(LocalLinks& links) : links_(links) {}

  // Where rank `to` finds the bytes; none where they are not shareable, few, or their segment
  // cannot be handed over now.
  std::optional<LentBytes> Lend(int to, const void* data, int64_t size_bytes);

  // The address here of what rank `from` lends, valid while this lives. Errors name the rank:
  // INTERNAL where `lent` is damaged, not of `size_bytes`, or of a segment that was not handed over
  // or ends before; RESOURCE_EXHAUSTED where it cannot be mapped; those of the link.
  absl::StatusOr<const std::byte*> Borrow(int from, const LentBytes& lent, int64_t size_bytes);

 private:
  using Key = std::pair<int, uint64_t>;  // rank, segment

  LocalLinks& links_;
  std::set<Key> handed_;
  std::map<Key, std::unique_ptr<const MappedSegment>> mapped_;
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_PEER_MEMORY_H_
