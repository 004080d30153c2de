// SharedSegment: the memory through which the ranks of one host exchange, of a size that depends on
// the number of ranks alone. In it, for each rank, what it says of itself; and channels, rings of
// slots that one rank fills and others empty, chunk by chunk:
//
//   an outbox for each rank, read by all others    (gathers and broadcasts: one copy in, for all)
//   a pair channel for each ordered pair            (reduce-scatter and all-to-all)
//   a message channel for each ordered pair         (send and receive, apart from collectives)
//
// All of it is valid as zero bytes. The segment has no name: its descriptor is handed from process
// to process, and it goes with the last process that maps it.
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
#include "common/status/file_descriptor.h"

namespace tandem::comm {

// Ranks are bits of a word where they are counted.
constexpr int kMaxLocalRanks = 32;
constexpr uint64_t kSlotsOfChannel = 8;
constexpr uint64_t kNoticesOfRank = 32;

// What a rank does in an operation; all ranks must say the same of a collective.
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

// What a rank says of itself; written by it alone.
struct alignas(64) RankBlock {
  Doorbell doorbell;                               // rung by peers for this rank
  alignas(64) std::atomic<uint64_t> num_notices;   // collectives that it has begun
  alignas(64) std::atomic<uint64_t> num_compared;  // of every peer's notices with its own
  alignas(64) std::atomic<RankState> state;
  std::array<char, 1024> reason;  // of kFailed, written before it
  std::array<Notice, kNoticesOfRank> notices;
};

// A ring of slots. One rank writes, each of its readers reads every slot once.
class Channel {
 public:
  struct Slot {
    Notice notice;  // of a message, in its first slot
    std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
    const std::byte* data() const { return reinterpret_cast<const std::byte*>(this + 1); }
  };

  static size_t BytesFor(int num_readers, int64_t slot_bytes);
  Channel() = default;
  // On memory that BytesFor() says, aligned to 64 bytes.
  Channel(std::byte* memory, int num_readers, int64_t slot_bytes);

  int64_t slot_bytes() const { return slot_bytes_; }

  // The writer: null while a reader has the next slot still to read. Publish() hands it over.
  Slot* NextToWrite();
  void Publish();
  // How many slots were handed over so far, and whether all readers have read as many.
  uint64_t num_published() const { return written_->slots.load(std::memory_order_relaxed); }
  bool HaveRead(uint64_t slots) const;
  // Readers that the next slot waits for, as bits.
  uint64_t SlowReaders() const;

  // A reader: null while there is nothing to read. Release() hands the slot back.
  const Slot* NextToRead(int reader) const;
  void Release(int reader);

 private:
  struct alignas(64) Cursor {
    std::atomic<uint64_t> slots{0};
  };
  Slot* At(uint64_t index) const;

  Cursor* written_ = nullptr;
  Cursor* read_ = nullptr;  // one for each reader
  std::byte* slots_ = nullptr;
  int num_readers_ = 0;
  int64_t slot_bytes_ = 0;
};

class SharedSegment {
 public:
  // Whether this system lends such memory at all; what failed where it does not.
  static absl::Status Check();
  // A new one for `size` ranks, with all its pages. RESOURCE_EXHAUSTED where there is no room.
  static absl::StatusOr<FileDescriptor> CreateFile(int size);
  // Maps it. INVALID_ARGUMENT where the file is of another size, that is, of another build.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Map(const FileDescriptor& file, int size);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  RankBlock& rank(int rank) const { return ranks_[rank]; }
  // Which reader of another rank's outbox a rank is.
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
