#include "services/rollout/kv_cache/routed_prefixes.h"

#include <iterator>

namespace tandem::rollout {

void RoutedPrefixes::Put(const BlockHash& hash, absl::Span<const uint16_t> experts) {
  if (Find(hash) != nullptr || max_blocks_ <= 0) return;
  while (num_blocks() >= max_blocks_) {
    places_.erase(entries_.front().first);
    entries_.pop_front();
  }
  entries_.emplace_back(hash, std::vector<uint16_t>(experts.begin(), experts.end()));
  places_[hash] = std::prev(entries_.end());
}

const std::vector<uint16_t>* RoutedPrefixes::Find(const BlockHash& hash) {
  const auto found = places_.find(hash);
  if (found == places_.end()) return nullptr;
  entries_.splice(entries_.end(), entries_, found->second);
  return &found->second->second;
}

}  // namespace tandem::rollout
