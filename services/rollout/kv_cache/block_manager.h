// BlockManager: which blocks of the KV cache are in use, by reference counts, and which full blocks
// later prompts can share. It holds block ids only; the keys and values of a block lie in
// model::PagedKvCache (common/model/paged_kv_cache.h), at its id.
//
//   BlockManager blocks(num_blocks, block_size);
//   blocks.SetRoot(RootHash(model, policy_version, salt));
//   PrefixMatch match = blocks.MatchPrefix(prompt, prompt.size() - 1);   // retained for the caller
//   std::optional<int32_t> block = blocks.Allocate();
//   blocks.Publish(*block, ChainHash(parent, tokens_of_block));    // once full and computed
//   blocks.KeepTail({*block}, parent, tokens_of_block);            // or, at the end, if it is not full
//   blocks.Release(*block);
#ifndef TANDEM_SERVICES_ROLLOUT_KV_CACHE_BLOCK_MANAGER_H_
#define TANDEM_SERVICES_ROLLOUT_KV_CACHE_BLOCK_MANAGER_H_

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/cache_groups.h"

namespace tandem::rollout {

// Identifies a full block by its tokens, all tokens before them, and the weights that computed it.
using BlockHash = std::pair<uint64_t, uint64_t>;

// The hash before the first block. Model, policy version and salt separate caches: after a change
// no older block matches, so no flush is needed.
BlockHash RootHash(absl::string_view model, int64_t policy_version, absl::string_view salt);

BlockHash ChainHash(const BlockHash& parent, absl::Span<const int32_t> tokens);

// What stands at a token besides its id: the image whose placeholders begin there. `digest` is part of
// the image's SHA-256 digest, so that nobody finds two images with one.
struct TokenDigest {
  int64_t token = 0;
  BlockHash digest;
};

// The hashes of a sequence's full blocks under one root. Each is computed once, when first needed: a
// prompt that waits for room is looked up at every step.
class BlockHashes {
 public:
  // The images of the sequence, in order. Call before At(). Blocks of prompts with equal ids have
  // other hashes from the first image on that differs.
  void SetDigests(std::vector<TokenDigest> digests) { digests_ = std::move(digests); }
  // Whether an image begins in [begin, end).
  bool HasDigestIn(int64_t begin, int64_t end) const;

  // The hash of block position `i` of `tokens`, which only grow between calls. Another root starts
  // again.
  BlockHash At(const BlockHash& root, absl::Span<const int32_t> tokens, int64_t block_size,
               int64_t i);

 private:
  BlockHash root_;
  std::vector<BlockHash> hashes_;
  std::vector<TokenDigest> digests_;
};

// The block of a finished sequence's last tokens, one for each cache group, in a sequence that
// continues it.
struct Tail {
  std::vector<int32_t> blocks;  // empty: none
  int64_t num_tokens = 0;       // that they hold
};

// The cached beginning of a prompt.
struct PrefixMatch {
  std::vector<int32_t> blocks;  // a block table (cache_groups.h)
  int64_t num_tokens = 0;       // whole blocks
};

// A block without references is free. A free published block keeps its contents until it is
// evicted, least recently used first. So does a tail: the block of a finished sequence's last tokens,
// which are fewer than a block. The next turn of an episode continues the sequence and takes it over. A
// tail waits for its turn like the full blocks before it: evicted earlier, it would be gone whenever the
// cache is full of older blocks, which it is once a rollout has run for a while.
//
// Every block can serve any cache group (cache_groups.h). Published blocks are looked up by hash
// and group. A group with a window needs the blocks that the window covers, the others all blocks.
// Owned by the engine thread.
class BlockManager {
 public:
  // `windows`: the window of each cache group.
  BlockManager(int64_t num_blocks, int64_t block_size, std::vector<model::Window> windows = {0});

  int64_t num_blocks() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t block_size() const { return block_size_; }
  int64_t num_groups() const { return static_cast<int64_t>(windows_.size()); }
  // Blocks that Allocate() can return, including evictable cached blocks.
  int64_t num_free() const { return static_cast<int64_t>(free_.size() + unused_.size()); }
  // Block positions of a table for `num_tokens` tokens.
  int64_t BlocksFor(int64_t num_tokens) const {
    return (num_tokens + block_size_ - 1) / block_size_;
  }
  // The maximum number of blocks that a sequence holds at once; see model::MaxBlocksAtOnce().
  int64_t MaxBlocksAtOnce(int64_t num_tokens, int64_t step_tokens) const {
    return model::MaxBlocksAtOnce(windows_, num_tokens, step_tokens, block_size_);
  }
  // The first block position of the group that tokens from `position` on see.
  int64_t FirstBlockInUse(int64_t group, int64_t position) const {
    return model::FirstBlockInUse(windows_[group], position, block_size_);
  }

  // Sets the root hash for later publications and prefix lookups. Drops the tails of another root: nobody
  // finds them again, and the next sequences get their blocks, which the processor's caches still hold.
  void SetRoot(const BlockHash& root);
  const BlockHash& root() const { return root_; }

  // Returns the longest prefix of `tokens`, in whole blocks and of at most `max_tokens`, for which
  // every group has all blocks that the next token sees. Blocks that have left a group's window are
  // kNoBlock in the table; the others are retained for the caller. `hashes`: those of the tokens.
  PrefixMatch MatchPrefix(absl::Span<const int32_t> tokens, int64_t max_tokens,
                          BlockHashes& hashes);
  PrefixMatch MatchPrefix(absl::Span<const int32_t> tokens, int64_t max_tokens) {
    BlockHashes hashes;
    return MatchPrefix(tokens, max_tokens, hashes);
  }

  // The length of what MatchPrefix() would return.
  int64_t NumCached(absl::Span<const int32_t> tokens, int64_t max_tokens,
                    BlockHashes& hashes) const {
    return FindPrefix(tokens, max_tokens, hashes).num_tokens;
  }

  // Returns a block of undefined contents with one reference, or nullopt if all are referenced.
  std::optional<int32_t> Allocate();

  void Retain(int32_t block) { Take(block); }
  void Release(int32_t block);
  bool IsShared(int32_t block) const { return blocks_[block].references > 1; }

  // Keeps the computed contents of blocks, one for each group, whose only reference the caller is about
  // to release. `parent`: the hash of the blocks before them; `tokens`: those they hold, fewer than a
  // block. Replaces an equal tail.
  void KeepTail(absl::Span<const int32_t> blocks, const BlockHash& parent,
                absl::Span<const int32_t> tokens);

  // Takes the longest tail of this parent all of whose tokens are the first of `next`. The caller has the
  // only reference to its blocks, and may write behind their tokens.
  Tail TakeTail(const BlockHash& parent, absl::Span<const int32_t> next);

  // Publishes a full, computed block of a group, which must not be written again. If another block
  // of the group already has the same hash, this one stays private.
  void Publish(int32_t block, const BlockHash& hash, int64_t group = 0);

 private:
  using Key = std::pair<BlockHash, int64_t>;  // the hash and the group
  struct Block {
    int32_t references = 0;
    bool published = false;
    bool is_tail = false;  // otherwise full
    Key key;
    std::list<int32_t>::iterator unused;  // in unused_; valid if published and unreferenced
  };

  // MatchPrefix() without retaining, and with the blocks that have left a window.
  PrefixMatch FindPrefix(absl::Span<const int32_t> tokens, int64_t max_tokens,
                         BlockHashes& hashes) const;
  void Take(int32_t block);
  // Forgets the contents of a published block.
  void Unpublish(Block& block);
  // The same for a tail, whose blocks become free.
  void DropTail(const BlockHash& hash);
  // The blocks of a tail, one for each group; empty if one is missing.
  std::vector<int32_t> FindTail(const BlockHash& hash) const;

  const int64_t block_size_;
  const std::vector<model::Window> windows_;
  BlockHash root_;
  std::vector<Block> blocks_;
  std::vector<int32_t> free_;  // without contents
  std::list<int32_t> unused_;  // published, unreferenced; least recently used first
  absl::flat_hash_map<Key, int32_t> published_;
  absl::flat_hash_map<Key, int32_t> tails_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_KV_CACHE_BLOCK_MANAGER_H_
