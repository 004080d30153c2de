// RoutedPrefixes: the experts that the tokens of full cache blocks were routed to, by the blocks'
// hashes. A request that returns experts reads the prefix cache as far as they are known.
//
//   RoutedPrefixes prefixes(num_blocks);
//   prefixes.Put(hash, experts_of_block);
//   if (const std::vector<uint16_t>* experts = prefixes.Find(hash)) Append(*experts);
#ifndef TANDEM_SERVICES_ROLLOUT_KV_CACHE_ROUTED_PREFIXES_H_
#define TANDEM_SERVICES_ROLLOUT_KV_CACHE_ROUTED_PREFIXES_H_

#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "services/rollout/kv_cache/block_manager.h"

namespace tandem::rollout {

// Separate from the blocks: another request may have published a block whose experts nobody recorded,
// and a window frees blocks whose experts are still wanted. Holds at most as many blocks as the cache
// and forgets the least recently used ones. Owned by the engine thread.
class RoutedPrefixes {
 public:
  explicit RoutedPrefixes(int64_t max_blocks) : max_blocks_(max_blocks) {}

  // experts: of the block's tokens, one after another (model::RoutedLayout). No effect on a known block.
  void Put(const BlockHash& hash, absl::Span<const uint16_t> experts);
  bool Contains(const BlockHash& hash) const { return places_.contains(hash); }
  // Null if they are unknown. Valid until the next Put().
  const std::vector<uint16_t>* Find(const BlockHash& hash);

  int64_t num_blocks() const { return static_cast<int64_t>(places_.size()); }

 private:
  using Entry = std::pair<BlockHash, std::vector<uint16_t>>;

  const int64_t max_blocks_;
  std::list<Entry> entries_;  // least recently used first
  absl::flat_hash_map<BlockHash, std::list<Entry>::iterator> places_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_KV_CACHE_ROUTED_PREFIXES_H_
