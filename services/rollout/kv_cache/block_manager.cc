#include "services/rollout/kv_cache/block_manager.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::rollout {
namespace {

BlockHash Hash128(const void* data, size_t size, uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(data, size, seed);
  return {hash.low64, hash.high64};
}

BlockHash WithDigest(const BlockHash& hash, const TokenDigest& at) {
  const uint64_t all[5] = {hash.first, hash.second, at.digest.first, at.digest.second,
                           static_cast<uint64_t>(at.token)};
  return Hash128(all, sizeof(all), 0);
}

}  // namespace

BlockHash RootHash(absl::string_view model, int64_t policy_version, absl::string_view salt) {
  // Lengths keep neighbouring texts apart.
  const std::string text =
      absl::StrCat(model.size(), ":", model, policy_version, ":", salt.size(), ":", salt);
  return Hash128(text.data(), text.size(), 0);
}

BlockHash ChainHash(const BlockHash& parent, absl::Span<const int32_t> tokens) {
  const BlockHash own = Hash128(tokens.data(), tokens.size() * sizeof(int32_t), parent.first);
  const uint64_t both[4] = {parent.first, parent.second, own.first, own.second};
  return Hash128(both, sizeof(both), 0);
}

bool BlockHashes::HasDigestIn(int64_t begin, int64_t end) const {
  return std::any_of(digests_.begin(), digests_.end(),
                     [&](const TokenDigest& at) { return begin <= at.token && at.token < end; });
}

BlockHash BlockHashes::At(const BlockHash& root, absl::Span<const int32_t> tokens,
                          int64_t block_size, int64_t i) {
  if (root != root_) hashes_.clear();
  root_ = root;
  for (auto next = static_cast<int64_t>(hashes_.size()); next <= i; ++next) {
    BlockHash hash =
        ChainHash(next == 0 ? root : hashes_.back(), tokens.subspan(next * block_size, block_size));
    for (const TokenDigest& at : digests_) {
      if (at.token / block_size == next) hash = WithDigest(hash, at);
    }
    hashes_.push_back(hash);
  }
  return hashes_[i];
}

BlockManager::BlockManager(int64_t num_blocks, int64_t block_size,
                           std::vector<model::Window> windows)
    : block_size_(block_size), windows_(std::move(windows)), blocks_(num_blocks) {
  // Allocate() takes from the back. Low ids go first, so that the cache touches no more memory than
  // it needs.
  for (int64_t i = num_blocks - 1; i >= 0; --i) free_.push_back(static_cast<int32_t>(i));
}

PrefixMatch BlockManager::FindPrefix(absl::Span<const int32_t> tokens, int64_t max_tokens,
                                     BlockHashes& hashes) const {
  const int64_t groups = num_groups();
  const int64_t limit = std::min<int64_t>(max_tokens, static_cast<int64_t>(tokens.size()));
  PrefixMatch match;
  // By group: the position from which on every block is cached.
  std::vector<int64_t> cached_since(groups, 0);
  bool may_grow = true;
  for (int64_t i = 0; may_grow && (i + 1) * block_size_ <= limit; ++i) {
    const BlockHash hash = hashes.At(root_, tokens, block_size_, i);
    const int64_t end = (i + 1) * block_size_;
    bool suffices = true;
    for (int64_t group = 0; group < groups; ++group) {
      const auto found = published_.find(Key{hash, group});
      match.blocks.push_back(found == published_.end() ? model::kNoBlock : found->second);
      if (found == published_.end()) cached_since[group] = i + 1;
      suffices = suffices && cached_since[group] <= FirstBlockInUse(group, end);
      // A group without a window needs this block for every longer prefix, too.
      may_grow = may_grow && (windows_[group].IsLimited() || cached_since[group] == 0);
    }
    if (!suffices) continue;
    match.num_tokens = end;
  }
  match.blocks.resize(match.num_tokens / block_size_ * groups);
  return match;
}

PrefixMatch BlockManager::MatchPrefix(absl::Span<const int32_t> tokens, int64_t max_tokens,
                                      BlockHashes& hashes) {
  const int64_t groups = num_groups();
  PrefixMatch match = FindPrefix(tokens, max_tokens, hashes);
  const int64_t positions = match.num_tokens / block_size_;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t first = FirstBlockInUse(group, match.num_tokens);
    for (int64_t i = 0; i < positions; ++i) {
      int32_t& block = match.blocks[i * groups + group];
      if (i < first) {
        block = model::kNoBlock;
      } else {
        Take(block);
      }
    }
  }
  return match;
}

std::optional<int32_t> BlockManager::Allocate() {
  int32_t id;
  if (!free_.empty()) {
    id = free_.back();
    free_.pop_back();
  } else {
    if (unused_.empty()) return std::nullopt;
    id = unused_.front();
    unused_.pop_front();
    Unpublish(blocks_[id]);
  }
  blocks_[id].references = 1;
  return id;
}

void BlockManager::Take(int32_t id) {
  Block& block = blocks_[id];
  if (block.references++ == 0) unused_.erase(block.unused);
}

void BlockManager::Release(int32_t id) {
  Block& block = blocks_[id];
  if (block.references <= 0) std::abort();  // released twice: the caller has a bug
  if (--block.references > 0) return;
  if (!block.published) {
    free_.push_back(id);
  } else {
    block.unused = unused_.insert(unused_.end(), id);
  }
}

void BlockManager::Unpublish(Block& block) {
  (block.is_tail ? tails_ : published_).erase(block.key);
  block.published = block.is_tail = false;
}

void BlockManager::SetRoot(const BlockHash& root) {
  if (root == root_) return;
  root_ = root;
  while (!tails_.empty()) {
    const BlockHash hash = tails_.begin()->first.first;  // a copy: the key goes with its tail
    DropTail(hash);
  }
}

void BlockManager::DropTail(const BlockHash& hash) {
  for (int64_t group = 0; group < num_groups(); ++group) {
    const auto found = tails_.find(Key{hash, group});
    if (found == tails_.end()) continue;  // evicted
    const int32_t id = found->second;
    unused_.erase(blocks_[id].unused);
    Unpublish(blocks_[id]);
    free_.push_back(id);
  }
}

void BlockManager::KeepTail(absl::Span<const int32_t> blocks, const BlockHash& parent,
                            absl::Span<const int32_t> tokens) {
  const BlockHash hash = ChainHash(parent, tokens);
  DropTail(hash);
  for (int64_t group = 0; group < num_groups(); ++group) {
    Block& block = blocks_[blocks[group]];
    block.published = block.is_tail = true;
    block.key = Key{hash, group};
    tails_[block.key] = blocks[group];
  }
}

std::vector<int32_t> BlockManager::FindTail(const BlockHash& hash) const {
  std::vector<int32_t> blocks;
  for (int64_t group = 0; group < num_groups(); ++group) {
    const auto found = tails_.find(Key{hash, group});
    if (found == tails_.end()) return {};
    blocks.push_back(found->second);
  }
  return blocks;
}

Tail BlockManager::TakeTail(const BlockHash& parent, absl::Span<const int32_t> next) {
  if (tails_.empty()) return {};
  for (auto count = std::min<int64_t>(block_size_ - 1, static_cast<int64_t>(next.size()));
       count > 0; --count) {
    Tail tail{.blocks = FindTail(ChainHash(parent, next.first(count))), .num_tokens = count};
    if (tail.blocks.empty()) continue;
    for (const int32_t id : tail.blocks) {
      Take(id);
      Unpublish(blocks_[id]);
    }
    return tail;
  }
  return {};
}

void BlockManager::Publish(int32_t id, const BlockHash& hash, int64_t group) {
  Block& block = blocks_[id];
  const Key key{hash, group};
  if (block.published || !published_.try_emplace(key, id).second) return;
  block.published = true;
  block.key = key;
}

}  // namespace tandem::rollout
