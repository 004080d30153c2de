// Builds collectives from messages between each pair of ranks: which bytes go where, in which
// order, and what happens on arrival. The engine (socket_engine.h) moves them.
//
//   CollectiveMessages messages(rank, size, "layers.3");
//   messages.AllGather(full, shard_bytes);
//   RETURN_IF_ERROR(engine.Start(collective, messages.Take()));
//
// Every rank lists its messages to a peer in the order in which that peer lists its receives. A
// message that depends on received data keeps its place in the queue and waits there: on each link
// the oldest collective never waits for a later one, so there is no deadlock.
//
// Large tensors are split into blocks: a block is reduced or forwarded while it is in the core's
// cache and the next one is in flight. Scratch memory: two blocks per peer.
#ifndef TANDEM_COMMON_COMM_MESH_COLLECTIVES_H_
#define TANDEM_COMMON_COMM_MESH_COLLECTIVES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/reduce_kernels.h"
#include "common/comm/socket_engine.h"

namespace tandem::comm {

// An elementwise reduction.
struct Reduction {
  ReduceKind kind = ReduceKind::kSum;
  ReduceType type = ReduceType::kFloat;
  int64_t element_bytes = 4;
};

// Messages of one collective. Pointers must stay valid until it is done.
class CollectiveMessages {
 public:
  // `tag`: must equal the tag of the other ranks' messages. Uses links [0, size) of the engine.
  CollectiveMessages(int rank, int size, std::string tag)
      : rank_(rank), size_(size), tag_(std::move(tag)) {}

  // full: `size` slices of `bytes`; this rank's slice is already in place.
  void AllGather(std::byte* full, int64_t bytes);
  // Both hold `size` slices of `bytes`; the caller has already copied this rank's slice.
  void AllToAll(std::byte* out, const std::byte* in, int64_t bytes);
  // full: `size` slices of `bytes`; `out`, of `bytes`, may be this rank's slice.
  void ReduceScatter(std::byte* out, const std::byte* full, int64_t bytes,
                     const Reduction& reduction);
  void AllReduce(std::byte* data, int64_t bytes, const Reduction& reduction);
  void Broadcast(std::byte* data, int64_t bytes, int root);

  std::vector<std::shared_ptr<SocketMessage>> Take() { return std::move(messages_); }

 private:
  using MessagePtr = std::shared_ptr<SocketMessage>;
  struct Blocks;  // the blocks of the slice that this rank reduces

  MessagePtr Add(bool is_send, int peer, const std::byte* data, int64_t bytes);
  // The peers, ordered so that every rank sends to a different one first.
  std::vector<int> Peers() const;
  // Receives the other ranks' parts of this rank's slice, block by block, and reduces them with
  // `own`, this rank's part, into `out`.
  std::shared_ptr<Blocks> ReduceSlice(std::byte* out, const std::byte* own, int64_t bytes,
                                      const Reduction& reduction);

  const int rank_;
  const int size_;
  const std::string tag_;
  std::vector<MessagePtr> messages_;
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_MESH_COLLECTIVES_H_
