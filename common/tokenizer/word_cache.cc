#include "common/tokenizer/word_cache.h"

#include "absl/hash/hash.h"

namespace tandem::tokenizer {

WordCache::Shard& WordCache::ShardOf(absl::string_view word) const {
  return shards_[absl::Hash<absl::string_view>()(word) % kShards];
}

bool WordCache::Lookup(absl::string_view word, std::vector<int32_t>* ids) const {
  if (word.size() > kMaxWordBytes) return false;
  Shard& shard = ShardOf(word);
  const absl::MutexLock lock(&shard.mu);
  const auto it = shard.ids.find(word);
  if (it == shard.ids.end()) return false;
  ids->insert(ids->end(), it->second.begin(), it->second.end());
  return true;
}

void WordCache::Insert(absl::string_view word, const int32_t* ids, size_t count) const {
  if (word.size() > kMaxWordBytes) return;
  Shard& shard = ShardOf(word);
  const absl::MutexLock lock(&shard.mu);
  if (shard.ids.size() >= kEntriesPerShard) shard.ids.clear();
  shard.ids.try_emplace(std::string(word), ids, ids + count);
}

}  // namespace tandem::tokenizer
