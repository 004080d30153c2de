#include "services/rollout/kv_cache/block_manager.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace tandem::rollout {
namespace {

BlockHash Hash128(const void* data, size_t size, uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(data, size, seed);
  return {hash.low64, hash.high64};
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

BlockManager::BlockManager(int64_t num_blocks, int64_t block_size)
    : block_size_(block_size), blocks_(num_blocks) {
  // Taken from the back: low ids first, whose memory is touched already.
  for (int64_t i = num_blocks - 1; i >= 0; --i) free_.push_back(static_cast<int32_t>(i));
}

PrefixMatch BlockManager::MatchPrefix(absl::Span<const int32_t> tokens, int64_t max_tokens) {
  PrefixMatch match{{}, root_};
  const int64_t limit = std::min<int64_t>(max_tokens, static_cast<int64_t>(tokens.size()));
  for (int64_t i = 0; i + block_size_ <= limit; i += block_size_) {
    const BlockHash hash = ChainHash(match.hash, tokens.subspan(i, block_size_));
    const auto found = published_.find(hash);
    if (found == published_.end()) break;
    match.blocks.push_back(found->second);
    match.hash = hash;
    Take(found->second);
  }
  return match;
}

std::optional<int32_t> BlockManager::Allocate() {
  int32_t id;
  if (!free_.empty()) {
    id = free_.back();
    free_.pop_back();
  } else if (!reusable_.empty()) {
    id = reusable_.front();
    reusable_.pop_front();
    published_.erase(blocks_[id].hash);
    blocks_[id].published = false;
  } else {
    return std::nullopt;
  }
  blocks_[id].references = 1;
  return id;
}

void BlockManager::Take(int32_t id) {
  Block& block = blocks_[id];
  if (block.references++ == 0) reusable_.erase(block.reusable);
}

void BlockManager::Release(int32_t id) {
  Block& block = blocks_[id];
  if (block.references <= 0) std::abort();  // released twice: a mistake of ours, best seen here
  if (--block.references > 0) return;
  if (!block.published) {
    free_.push_back(id);
  } else {
    block.reusable = reusable_.insert(reusable_.end(), id);
  }
}

void BlockManager::Publish(int32_t id, const BlockHash& hash) {
  Block& block = blocks_[id];
  if (block.published || !published_.try_emplace(hash, id).second) return;
  block.published = true;
  block.hash = hash;
}

}  // namespace tandem::rollout
