#include "common/model/cache_groups.h"

#include <algorithm>
#include <map>

namespace tandem::model {
namespace {

// More groups would waste less memory on unused places, and cost more bookkeeping in each step.
constexpr int64_t kMaxGroups = 8;

int64_t RoundedUpQuotient(int64_t a, int64_t b) { return (a + b - 1) / b; }

// `counts`: layers of each window. Returns the number of layers per block that leaves the fewest
// places unused; among equals the largest, which makes the fewest groups.
int64_t LayersPerBlock(const std::map<int64_t, int64_t>& counts) {
  int64_t most = 0;
  for (const auto& [window, count] : counts) most = std::max(most, count);
  int64_t best = most;
  int64_t least_places = 0;
  for (int64_t layers = most; layers >= 1; --layers) {
    int64_t groups = 0;
    for (const auto& [window, count] : counts) groups += RoundedUpQuotient(count, layers);
    if (layers == most) {
      least_places = groups * layers;
    } else if (groups > kMaxGroups) {
      break;
    } else if (groups * layers < least_places) {
      best = layers;
      least_places = groups * layers;
    }
  }
  return best;
}

}  // namespace

CacheGroups GroupLayers(absl::Span<const int64_t> windows) {
  std::map<int64_t, int64_t> counts;
  for (const int64_t window : windows) {
    if (window != kNoCache) ++counts[window];
  }
  CacheGroups groups;
  groups.layers_per_block = LayersPerBlock(counts);
  std::map<int64_t, LayerCachePlace> next;  // by window
  for (const auto& [window, count] : counts) {
    next[window].group = groups.num_groups();
    groups.windows.insert(groups.windows.end(), RoundedUpQuotient(count, groups.layers_per_block),
                          window);
  }
  for (const int64_t window : windows) {
    if (window == kNoCache) {
      groups.layers.emplace_back();
      continue;
    }
    LayerCachePlace& place = next[window];
    groups.layers.push_back(place);
    if (++place.index == groups.layers_per_block) place = {place.group + 1, 0};
  }
  return groups;
}

std::vector<int64_t> LayerWindows(const ModelSpec& spec) {
  std::vector<int64_t> windows;
  for (const LayerSpec& layer : spec.layers) {
    windows.push_back(CacheOf(layer.attention, {}).window);
  }
  return windows;
}

std::vector<int64_t> CacheWindows(const ModelSpec& spec, bool on_gpu) {
  std::vector<int64_t> windows = LayerWindows(spec);
  for (int64_t& window : windows) {
    if (on_gpu && window != kNoCache) window = 0;
  }
  return windows;
}

int64_t FirstBlockInUse(int64_t window, int64_t position, int64_t block_size) {
  return window == 0 ? 0 : std::max<int64_t>(0, position + 1 - window) / block_size;
}

int64_t MaxBlocksAtOnce(absl::Span<const int64_t> group_windows, int64_t num_tokens,
                        int64_t step_tokens, int64_t block_size) {
  const int64_t whole = RoundedUpQuotient(num_tokens, block_size);
  int64_t blocks = 0;
  for (const int64_t window : group_windows) {
    // The first token of a step sees window - 1 tokens before it, and a block may begin anywhere.
    const int64_t in_use = RoundedUpQuotient(window - 1 + step_tokens, block_size) + 1;
    blocks += window == 0 ? whole : std::min(whole, in_use);
  }
  return blocks;
}

}  // namespace tandem::model
