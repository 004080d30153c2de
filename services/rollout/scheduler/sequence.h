// Sequence: a prompt with its sampled tokens, and its part of the KV cache. The unit of scheduling.
#ifndef TANDEM_SERVICES_ROLLOUT_SCHEDULER_SEQUENCE_H_
#define TANDEM_SERVICES_ROLLOUT_SCHEDULER_SEQUENCE_H_

#include <cstdint>
#include <limits>
#include <set>
#include <tuple>
#include <vector>

#include "common/model/image_places.h"
#include "services/rollout/kv_cache/block_manager.h"

namespace tandem::rollout {

struct Sequence {
  // Higher is served first. At equal priority clients take turns, and a client's sequences run by
  // arrival, less the head start, then index.
  int32_t priority = 0;
  uint64_t client = 0;
  int64_t arrival = 0;  // of the request
  int32_t index = 0;    // of the sample

  std::vector<int32_t> tokens;  // the prompt, then the sampled tokens
  int64_t num_prompt_tokens = 0;
  // Where the prompt's images lie in it, and its positions; outlives the sequence. Null: no images,
  // and a token's position is its place.
  const model::ImagePlaces* places = nullptr;

  // Samples that it stands for: n until the prompt is computed and the group is forked, then 1.
  int32_t num_samples = 1;

  // Leading tokens that the prefix cache may serve: what follows is computed, because its log-probs are
  // needed.
  int64_t max_cached = std::numeric_limits<int64_t>::max();
  // True: of the cached prefix only as much counts as Scheduler::NumUsable says.
  bool limits_cache = false;
  // False: older weights computed its blocks, so they must not enter the prefix cache.
  bool may_publish = true;

  // Written by the scheduler.
  int64_t head_start = 0;    // in arrivals
  int64_t num_computed = 0;  // leading tokens whose keys and values are in the cache
  int64_t num_cached = 0;    // prompt tokens found in the cache at first admission
  // The block table (common/model/cache_groups.h) of tokens 0 .. num_computed - 1, and of those
  // being computed.
  std::vector<int32_t> blocks;
  // Its place in model::RecurrentStates while it runs; -1: none.
  int32_t state = -1;
  // Leading block positions found in the prefix cache or published to it.
  int64_t num_hashed_blocks = 0;
  BlockHashes hashes;

  // The position of a token by time (axis 0), height (1) or width (2).
  int64_t PositionOf(int64_t token, size_t axis) const {
    if (places == nullptr) return token;
    const std::vector<int64_t>& of_prompt = places->positions[axis];
    const auto num_placed = static_cast<int64_t>(of_prompt.size());
    return token < num_placed ? of_prompt[static_cast<size_t>(token)]
                              : places->next_position + token - num_placed;
  }

  int64_t num_tokens() const { return static_cast<int64_t>(tokens.size()); }
  int64_t num_pending() const { return num_tokens() - num_computed; }
  int64_t num_sampled() const { return num_tokens() - num_prompt_tokens; }
};

struct ByPriority {
  bool operator()(const Sequence* a, const Sequence* b) const {
    return std::tuple(b->priority, a->arrival - a->head_start, a->arrival, a->index) <
           std::tuple(a->priority, b->arrival - b->head_start, b->arrival, b->index);
  }
};
using SequenceQueue = std::set<Sequence*, ByPriority>;

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SCHEDULER_SEQUENCE_H_
