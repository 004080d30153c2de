#include "common/comm/mesh_collectives.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tandem::comm {
namespace {

// One block from each of a few ranks fits in a core's cache, and the header costs little.
constexpr int64_t kBlockBytes = 512 << 10;
// Up to this size a collective uses one message each way, because round trips dominate its time.
constexpr int64_t kSmallBytes = 64 << 10;
constexpr int kBlocksUnderWay = 2;

}  // namespace

// The blocks of a slice that is being reduced. Held by the messages that bring them.
struct CollectiveMessages::Blocks {
  std::byte* out = nullptr;
  const std::byte* own = nullptr;
  int64_t bytes = 0;        // of the slice
  int64_t block_bytes = 1;  // of all blocks but the last
  int rank = 0;
  int size = 1;
  Reduction reduction;
  // [kBlocksUnderWay, size, block_bytes]: what the others sent, the rank's own place unused.
  std::unique_ptr<std::byte[]> scratch;
  std::vector<int> missing;  // by block: ranks whose part has not come
  // By block: what may begin once it is reduced.
  std::vector<std::vector<std::shared_ptr<SocketMessage>>> held;

  int64_t Begin(int64_t block) const { return block * block_bytes; }
  int64_t Size(int64_t block) const { return std::min(block_bytes, bytes - Begin(block)); }
  std::byte* Scratch(int64_t block, int peer) const {
    return scratch.get() + ((block % kBlocksUnderWay) * size + peer) * block_bytes;
  }

  // A part of the block has come.
  void Arrive(int64_t block) {
    if (--missing[block] > 0) return;
    std::vector<const void*> sources(size);
    for (int peer = 0; peer < size; ++peer) sources[peer] = Scratch(block, peer);
    sources[rank] = own + Begin(block);
    Reduce(reduction.kind, reduction.type, sources, out + Begin(block),
           Size(block) / reduction.element_bytes);
    for (const auto& message : held[block]) message->ready = true;
    held[block].clear();
  }
};

CollectiveMessages::MessagePtr CollectiveMessages::Add(bool is_send, int peer,
                                                       const std::byte* data, int64_t bytes) {
  auto message = std::make_shared<SocketMessage>();
  message->what.op = is_send ? "send" : "receive";
  message->what.tag = tag_;
  message->what.bytes = bytes;
  message->what.peer = peer;
  message->link = peer;
  message->is_send = is_send;
  message->data = const_cast<std::byte*>(data);
  messages_.push_back(message);
  return message;
}

std::vector<int> CollectiveMessages::Peers() const {
  std::vector<int> peers;
  for (int step = 1; step < size_; ++step) peers.push_back((rank_ + step) % size_);
  return peers;
}

void CollectiveMessages::AllGather(std::byte* full, int64_t bytes) {
  for (const int peer : Peers()) {
    Add(/*is_send=*/true, peer, full + rank_ * bytes, bytes);
    Add(/*is_send=*/false, peer, full + peer * bytes, bytes);
  }
}

void CollectiveMessages::AllToAll(std::byte* out, const std::byte* in, int64_t bytes) {
  for (const int peer : Peers()) {
    Add(/*is_send=*/true, peer, in + peer * bytes, bytes);
    Add(/*is_send=*/false, peer, out + peer * bytes, bytes);
  }
}

std::shared_ptr<CollectiveMessages::Blocks> CollectiveMessages::ReduceSlice(
    std::byte* out, const std::byte* own, int64_t bytes, const Reduction& reduction) {
  auto blocks = std::make_shared<Blocks>();
  blocks->out = out;
  blocks->own = own;
  blocks->bytes = bytes;
  blocks->block_bytes = std::max(reduction.element_bytes, std::min(bytes, kBlockBytes));
  blocks->rank = rank_;
  blocks->size = size_;
  blocks->reduction = reduction;
  const int64_t num_blocks = (bytes + blocks->block_bytes - 1) / blocks->block_bytes;
  if (num_blocks == 0) return blocks;
  blocks->scratch = std::make_unique<std::byte[]>(std::min<int64_t>(num_blocks, kBlocksUnderWay) *
                                                  size_ * blocks->block_bytes);
  blocks->missing.resize(num_blocks, size_ - 1);
  blocks->held.resize(num_blocks);
  for (const int peer : Peers()) {
    for (int64_t block = 0; block < num_blocks; ++block) {
      const auto message =
          Add(/*is_send=*/false, peer, blocks->Scratch(block, peer), blocks->Size(block));
      message->then = [blocks, block] { blocks->Arrive(block); };
      // Its scratch is that of an earlier block.
      if (block < kBlocksUnderWay) continue;
      message->ready = false;
      blocks->held[block - kBlocksUnderWay].push_back(message);
    }
  }
  return blocks;
}

void CollectiveMessages::ReduceScatter(std::byte* out, const std::byte* full, int64_t bytes,
                                       const Reduction& reduction) {
  const auto blocks = ReduceSlice(out, full + rank_ * bytes, bytes, reduction);
  for (const int peer : Peers()) {
    for (size_t block = 0; block < blocks->missing.size(); ++block) {
      Add(/*is_send=*/true, peer, full + peer * bytes + blocks->Begin(block), blocks->Size(block));
    }
  }
}

void CollectiveMessages::AllReduce(std::byte* data, int64_t bytes, const Reduction& reduction) {
  if (bytes == 0) return;
  if (bytes <= kSmallBytes) {
    // All to all, each rank reduces. What is sent is a copy, for the result takes its place.
    const auto copy = std::make_shared<std::vector<std::byte>>(data, data + bytes);
    ReduceSlice(data, copy->data(), bytes, reduction);
    // Messages that send the copy, or are added to it, keep it alive.
    for (const auto& message : messages_) {
      message->then = [then = std::move(message->then), copy] { then(); };
    }
    for (const int peer : Peers()) {
      const auto message = Add(/*is_send=*/true, peer, copy->data(), bytes);
      message->then = [copy] {};
    }
    return;
  }
  // Each rank reduces a slice, which the others then get. The bytes of a slice that a peer reduces
  // have left when the reduced ones come to take their place: the peer needed them.
  const int64_t elements = bytes / reduction.element_bytes;
  const int64_t slice = (elements + size_ - 1) / size_ * reduction.element_bytes;
  const auto begin = [&](int rank) { return std::min(bytes, rank * slice); };
  const auto length = [&](int rank) { return begin(rank + 1) - begin(rank); };
  const auto num_blocks = [&](int rank) { return (length(rank) + kBlockBytes - 1) / kBlockBytes; };
  const auto each_block = [&](int rank, const auto& visit) {
    for (int64_t block = 0; block < num_blocks(rank); ++block) {
      const int64_t offset = block * kBlockBytes;
      visit(block, begin(rank) + offset, std::min(kBlockBytes, length(rank) - offset));
    }
  };
  const auto blocks =
      ReduceSlice(data + begin(rank_), data + begin(rank_), length(rank_), reduction);
  for (const int peer : Peers()) {
    each_block(peer, [&](int64_t, int64_t at, int64_t size) {
      Add(/*is_send=*/true, peer, data + at, size);
    });
    each_block(rank_, [&](int64_t block, int64_t at, int64_t size) {
      const auto message = Add(/*is_send=*/true, peer, data + at, size);
      message->ready = false;
      blocks->held[block].push_back(message);
    });
    each_block(peer, [&](int64_t, int64_t at, int64_t size) {
      Add(/*is_send=*/false, peer, data + at, size);
    });
  }
}

void CollectiveMessages::Broadcast(std::byte* data, int64_t bytes, int root) {
  if (size_ == 2 || bytes <= kSmallBytes) {
    if (rank_ != root) {
      Add(/*is_send=*/false, root, data, bytes);
      return;
    }
    for (const int peer : Peers()) Add(/*is_send=*/true, peer, data, bytes);
    return;
  }
  // The root sends each block to one rank, which passes it on to the others: nobody sends much more
  // than the tensor's bytes, however many ranks there are.
  const int others = size_ - 1;
  for (int64_t block = 0; block * kBlockBytes < bytes; ++block) {
    std::byte* const at = data + block * kBlockBytes;
    const int64_t length = std::min(kBlockBytes, bytes - block * kBlockBytes);
    const int owner = (root + 1 + static_cast<int>(block % others)) % size_;
    if (rank_ == root) {
      Add(/*is_send=*/true, owner, at, length);
    } else if (rank_ != owner) {
      Add(/*is_send=*/false, owner, at, length);
    } else {
      const auto received = Add(/*is_send=*/false, root, at, length);
      std::vector<MessagePtr> passed;
      for (const int peer : Peers()) {
        if (peer == root) continue;
        const auto message = Add(/*is_send=*/true, peer, at, length);
        message->ready = false;
        passed.push_back(message);
      }
      received->then = [passed = std::move(passed)] {
        for (const auto& message : passed) message->ready = true;
      };
    }
  }
}

}  // namespace tandem::comm
