// SharedSegment: the memory through which ranks on one host exchange data; its size depends only on
// the number of ranks. It holds each rank's state, and channels: rings of slots that one rank
// fills and others empty, chunk by chunk:
//
//   an outbox for each rank, read by all others    (gathers and broadcasts: one copy in, for all)
//   a pair channel for each ordered pair            (reduce-scatter and all-to-all)
//   a message channel for each ordered pair         (send and receive, apart from collectives)
//
// Zero bytes are a valid initial state. The segment has no name: processes pass its descriptor on,
// and the system frees it when the last process that maps it ends.
#ifndef TANDEM_COMMON_COMM_SHARED_SEGMENT_H_
#define TANDEM_COMMON_COMM_SHARED_SEGMENT_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/comm/doorbell.h"
#include "common/host/file_descriptor.h"

namespace tandem::comm {

// Sets of ranks are bit masks in one word.
constexpr int kMaxLocalRanks = 32;
constexpr uint64_t kSlotsOfChannel = 8;
constexpr uint64_t kNoticesOfRank = 32;

// A rank's description of an operation; for a collective, all ranks' notices must be equal.
struct Notice {
  int32_t kind = 0;
  int32_t dtype = 0;
  int32_t root = -1;
  int32_t reduce = 0;
  int64_t bytes = 0;
  char tag[104] = {};  // ends with a zero byte

  void SetTag(absl::string_view text);
};
static_assert(sizeof(Notice) == 128);

enum class RankState : uint32_t { kAway = 0, kIn = 1, kLeft = 2, kFailed = 3 };

// A rank's state. Only the rank itself writes it, except the doorbell. Each counter has a cache
// line of its own: a rank that polls one is not disturbed by writes to another.
struct alignas(64) RankBlock {
  Doorbell doorbell;                               // peers ring it to wake this rank
  alignas(64) std::atomic<uint64_t> num_notices;   // collectives that it has begun
  alignas(64) std::atomic<uint64_t> num_compared;  // collectives compared with all peers' notices
  alignas(64) std::atomic<RankState> state;
  std::array<char, 1024> reason;  // why kFailed; written before the state
  std::array<Notice, kNoticesOfRank> notices;
};

// A ring of slots. One rank writes; each of its readers reads every slot once.
class Channel {
 public:
  struct Slot {
    Notice notice;  // set in a message's first slot
    std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
    const std::byte* data() const { return reinterpret_cast<const std::byte*>(this + 1); }
  };

  static size_t BytesFor(int num_readers, int64_t slot_bytes);
  Channel() = default;
  // `memory`: BytesFor() bytes, aligned to 64 bytes.
  Channel(std::byte* memory, int num_readers, int64_t slot_bytes);

  int64_t slot_bytes() const { return slot_bytes_; }

  // For the writer: null while a reader still has to read the next slot. Publish() hands it over.
  Slot* NextToWrite();
  void Publish();
  // Number of slots published so far, and whether all readers have read `slots` of them.
  uint64_t num_published() const { return written_->slots.load(std::memory_order_relaxed); }
  bool HaveRead(uint64_t slots) const;
  // Bit mask of the readers that still have to read the next slot.
  uint64_t SlowReaders() const;

  // For a reader: null while there is nothing to read. Release() returns the slot to the writer.
  const Slot* NextToRead(int reader) const;
  void Release(int reader);

 private:
  // A line each: writer and readers do not take it from one another.
  struct alignas(64) Cursor {
    std::atomic<uint64_t> slots{0};
  };
  Slot* At(uint64_t index) const;

  Cursor* written_ = nullptr;
  Cursor* read_ = nullptr;  // one per reader
  std::byte* slots_ = nullptr;
  int num_readers_ = 0;
  int64_t slot_bytes_ = 0;
};

class SharedSegment {
 public:
  // OK if this system supports such memory, else what failed.
  static absl::Status Check();
  // Creates one for `size` ranks, with all pages allocated. RESOURCE_EXHAUSTED if there is no room.
  static absl::StatusOr<host::FileDescriptor> CreateFile(int size);
  // Maps it. INVALID_ARGUMENT if the file has another size: another build created it.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Map(const host::FileDescriptor& file,
                                                            int size);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  RankBlock& rank(int rank) const { return ranks_[rank]; }
  // Reader index of `rank` in `owner`'s outbox.
  static int OutboxReader(int owner, int rank) { return rank < owner ? rank : rank - 1; }
  Channel& outbox(int owner) { return outboxes_[owner]; }
  Channel& pair(int from, int to) { return pairs_[from * size_ + to]; }
  Channel& messages(int from, int to) { return messages_[from * size_ + to]; }

 private:
  SharedSegment(std::byte* memory, size_t bytes, int size);

  std::byte* const memory_;
  const size_t bytes_;
  const int size_;
  RankBlock* ranks_ = nullptr;
  std::vector<Channel> outboxes_, pairs_, messages_;
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_SHARED_SEGMENT_H_
