// SharedTransfer: one rank's part in a shared-memory operation, or in one phase of it: streams of
// chunks into and out of channels. It never blocks: Step() moves what can move now.
#ifndef TANDEM_COMMON_COMM_SHARED_TRANSFER_H_
#define TANDEM_COMMON_COMM_SHARED_TRANSFER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/comm/message_taker.h"
#include "common/comm/peer_memory.h"
#include "common/comm/reduce_kernels.h"
#include "common/comm/shared_segment.h"

namespace tandem::comm {

// A rank's bit in a bit mask of ranks.
inline uint64_t Bit(int rank) { return uint64_t{1} << rank; }

// One thread at a time. Memory passed to it must stay valid until it is done or abandoned.
class SharedTransfer {
 public:
  SharedTransfer(SharedSegment& segment, int rank, int size)
      : segment_(&segment), rank_(rank), size_(size) {}

  // To all other ranks.
  void SendToAll(const void* data, int64_t bytes);
  void ReceiveFromAll(int from, void* data, int64_t bytes);
  // To one other rank.
  void SendToOne(int to, const void* data, int64_t bytes);
  void ReceiveFromOne(int from, void* data, int64_t bytes);
  // A message: its first chunk carries the notice, also if it is empty. If the data is lent
  // (peer_memory.h), one chunk carries its location, and the send completes once the peer has read
  // it. `memory` and `taker` must outlive this; `taker` may be null.
  void SendMessage(int to, const Notice& notice, const void* data, PeerMemory& memory);
  void ReceiveMessage(int from, void* data, int64_t bytes, PeerMemory& memory, MessageTaker* taker);
  // out = the reduction of `own` and of what every other rank sends: to this rank only or, with
  // `to_all`, to all. With to_all, `out` may be the data passed to SendToAll() before: each chunk
  // is overwritten only after it has been sent.
  void Reduce(ReduceKind kind, ReduceType type, int64_t element_bytes, const void* own, void* out,
              int64_t bytes, bool to_all);

  // Moves at most one chunk of each stream and reads only from the ranks in the bit mask
  // `readable`. Returns whether anything moved.
  bool Step(uint64_t readable);
  bool done() const { return chunks_left_ == 0; }
  // For a message to send: true if nothing is left to do on this side, so that the next may begin.
  bool handed_over() const { return done() || out_[0].published.has_value(); }
  // Bit mask of the ranks that the last Step() waited for.
  uint64_t waits_for() const { return waits_for_; }
  // The notice of a message other than the expected one; nothing of that message was read.
  const std::optional<Notice>& unexpected() const { return unexpected_; }
  // Why lent data cannot be read.
  const absl::Status& failure() const { return failure_; }

 private:
  struct Stream {
    int64_t bytes = 0;
    int64_t next = 0;  // the first byte of the next chunk
    int64_t chunks_left = 0;
  };
  struct Outgoing : Stream {
    Channel* channel = nullptr;
    std::vector<int> readers;  // ranks, in the channel's order of readers
    const std::byte* data = nullptr;
    std::optional<Notice> notice;
    PeerMemory* memory = nullptr;       // messages only
    std::optional<uint64_t> published;  // if lent: slots published, including this message's
  };
  struct Incoming : Stream {
    Channel* channel = nullptr;
    int reader = 0;
    int from = 0;
    std::byte* data = nullptr;
    bool is_message = false;
    PeerMemory* memory = nullptr;     // messages only
    MessageTaker* taker = nullptr;    // messages only; may be null
    const std::byte* lent = nullptr;  // the data, if it is lent
  };
  struct Reduction : Stream {
    ReduceKind kind = ReduceKind::kSum;
    ReduceType type = ReduceType::kFloat;
    int64_t element_bytes = 1;
    const std::byte* own = nullptr;
    std::byte* out = nullptr;
    bool after_sent = false;
    std::vector<Channel*> channels;  // by rank; null for this rank
    std::vector<int> readers;
  };

  void SetSize(Stream& stream, int64_t bytes, int64_t slot_bytes, bool at_least_one);
  void SetChunks(Stream& stream, int64_t chunks);
  void Advance(Stream& stream, int64_t bytes);
  void Ring(int rank) const { segment_->rank(rank).doorbell.Ring(); }
  bool StepOut(Outgoing& stream);
  // Tries to lend the message's data; true if the slot now carries its location.
  bool Lend(Outgoing& stream, Channel::Slot& slot);
  bool StepIn(Incoming& stream, uint64_t readable);
  // Puts the stream's next bytes into their place.
  static void Put(Incoming& stream, const std::byte* from, int64_t bytes);
  // Reads the next portion of a lent message.
  bool StepLent(Incoming& stream);
  bool StepReduction(Reduction& stream, uint64_t readable);

  SharedSegment* segment_;
  int rank_;
  int size_;
  std::vector<Outgoing> out_;
  std::vector<Incoming> in_;
  std::optional<Reduction> reduction_;
  int64_t chunks_left_ = 0;
  uint64_t waits_for_ = 0;
  std::optional<Notice> unexpected_;
  absl::Status failure_;
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_SHARED_TRANSFER_H_
