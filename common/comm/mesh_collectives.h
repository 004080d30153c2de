// Collectives as messages between each pair of ranks: which bytes go where, in which order, and
// what is done when they have come. The engine (socket_engine.h) moves them.
//
//   CollectiveMessages messages(rank, size);
//   messages.AllGather(full, shard_bytes);
//   RETURN_IF_ERROR(engine.Start(collective, messages.Take()));
//
// Every rank lists its messages to a peer in the order in which that peer lists those from it. A
// message that needs what others bring is listed in its place and held until that has come: of the
// collectives under way on a link the first is never held up by a later one, so none waits for
// ever.
//
// Large tensors are cut into blocks, so that a block is reduced, or passed on, while the next one
// travels and while it is in the core's cache; scratch memory is two blocks for each peer.
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

// What is added up, elementwise.
struct Reduction {
  ReduceKind kind = ReduceKind::kSum;
  ReduceType type = ReduceType::kFloat;
  int64_t element_bytes = 4;
};

// For one collective. Pointers are valid until it is done.
class CollectiveMessages {
 public:
  // `tag`: what the other ranks' messages must say. Links [0, size) of the engine are used.
  CollectiveMessages(int rank, int size, std::string tag)
      : rank_(rank), size_(size), tag_(std::move(tag)) {}

  // full: `size` slices of `bytes`; the own slice is in its place.
  void AllGather(std::byte* full, int64_t bytes);
  // Both of `size` slices of `bytes`; the own slice has been copied.
  void AllToAll(std::byte* out, const std::byte* in, int64_t bytes);
  // full: `size` slices of `bytes`; `out`, of `bytes`, may be the own one.
  void ReduceScatter(std::byte* out, const std::byte* full, int64_t bytes,
                     const Reduction& reduction);
  void AllReduce(std::byte* data, int64_t bytes, const Reduction& reduction);
  void Broadcast(std::byte* data, int64_t bytes, int root);

  std::vector<std::shared_ptr<SocketMessage>> Take() { return std::move(messages_); }

 private:
  using MessagePtr = std::shared_ptr<SocketMessage>;
  struct Blocks;  // of a slice that this rank reduces

  MessagePtr Add(bool is_send, int peer, const std::byte* data, int64_t bytes);
  // The peers, in an order that has every rank send to another one first.
  std::vector<int> Peers() const;
  // Receives the other ranks' parts of the own slice, block by block, and adds them to `own`, this
  // rank's part, into `out`.
  std::shared_ptr<Blocks> ReduceSlice(std::byte* out, const std::byte* own, int64_t bytes,
                                      const Reduction& reduction);

  const int rank_;
  const int size_;
  const std::string tag_;
  std::vector<MessagePtr> messages_;
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_MESH_COLLECTIVES_H_
