// SampleRouting: the experts of samples whose requests want them, across the prefix cache: tokens that
// come from there bring theirs along.
//
//   SampleRouting routing(blocks, routed_values_per_token);
//   const int64_t usable = routing.NumUsable(sample);  // of the prefix cache, when it is admitted
//   routing.AddCached(sample);                         // before a step computes the rest
//   routing.AddComputed(sample, first, experts);       // after it
#ifndef TANDEM_SERVICES_ROLLOUT_ENGINE_SAMPLE_ROUTING_H_
#define TANDEM_SERVICES_ROLLOUT_ENGINE_SAMPLE_ROUTING_H_

#include <cstdint>
#include <vector>

#include "services/rollout/engine/sample_state.h"
#include "services/rollout/kv_cache/block_manager.h"
#include "services/rollout/kv_cache/routed_prefixes.h"

namespace tandem::rollout {

// Owned by the engine thread.
class SampleRouting {
 public:
  // `blocks` outlives it. `values_per_token`: of model::RoutedLayout; 0: the model's routing is not
  // recorded, and nothing below is called.
  SampleRouting(const BlockManager& blocks, int64_t values_per_token)
      : blocks_(blocks), values_per_token_(values_per_token), prefixes_(blocks.num_blocks()) {}

  // Leading tokens, in whole blocks, whose experts are known.
  int64_t NumUsable(SampleState& sample) const;

  // Call once the sample is admitted: adds the experts of the tokens that the cache had.
  void AddCached(SampleState& sample);

  // Adds the experts of the tokens from `first` on, just computed: those of all tokens before are known.
  // Keeps those of full blocks for later requests.
  void AddComputed(SampleState& sample, int64_t first, const std::vector<uint16_t>& experts);

 private:
  int64_t NumKnown(const SampleState& sample) const {
    return static_cast<int64_t>(sample.routed_experts.size()) / values_per_token_;
  }
  BlockHash HashOf(SampleState& sample, int64_t block) const {
    return sample.hashes.At(blocks_.root(), sample.tokens, blocks_.block_size(), block);
  }

  const BlockManager& blocks_;
  const int64_t values_per_token_;
  RoutedPrefixes prefixes_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_ENGINE_SAMPLE_ROUTING_H_
