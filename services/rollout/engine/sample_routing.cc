#include "services/rollout/engine/sample_routing.h"

#include <algorithm>

#include "absl/types/span.h"
#include "common/model/routed_experts.h"

namespace tandem::rollout {

int64_t SampleRouting::NumUsable(SampleState& sample) const {
  const int64_t block_size = blocks_.block_size();
  int64_t end = 0;
  // A preempted sample knows its own.
  while (end + block_size <= sample.num_tokens() &&
         (end + block_size <= NumKnown(sample) ||
          prefixes_.Contains(HashOf(sample, end / block_size)))) {
    end += block_size;
  }
  return end;
}

void SampleRouting::AddCached(SampleState& sample) {
  std::vector<uint16_t>& known = sample.routed_experts;
  if (known.empty()) sample.routed_root = blocks_.root();
  const auto wanted = static_cast<size_t>(sample.num_computed * values_per_token_);
  const int64_t values_per_block = blocks_.block_size() * values_per_token_;
  while (known.size() < wanted) {
    const int64_t block = static_cast<int64_t>(known.size()) / values_per_block;
    const std::vector<uint16_t>* const experts = prefixes_.Find(HashOf(sample, block));
    // Tokens that NumUsable() did not count are not taken from the cache.
    if (experts == nullptr) break;
    known.insert(known.end(), experts->begin() + (known.size() - block * values_per_block),
                 experts->end());
  }
  known.resize(std::max(known.size(), wanted), model::kUnknownExpert);
}

void SampleRouting::AddComputed(SampleState& sample, int64_t first,
                                const std::vector<uint16_t>& experts) {
  AddExperts(sample, first, experts, values_per_token_);
  // Older weights chose what a sample keeps over an update.
  if (!sample.may_publish || sample.routed_root != blocks_.root()) return;
  const int64_t full = sample.num_computed / blocks_.block_size();
  const int64_t values_per_block = blocks_.block_size() * values_per_token_;
  for (int64_t& block = sample.num_routed_blocks; block < full; ++block) {
    prefixes_.Put(HashOf(sample, block), absl::MakeConstSpan(sample.routed_experts)
                                             .subspan(block * values_per_block, values_per_block));
  }
}

}  // namespace tandem::rollout
