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
int64_t LayersPerBlock(const std::map<Window, int64_t>& counts) {
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

CacheGroups GroupLayers(absl::Span<const Window> windows) {
  std::map<Window, int64_t> counts;
  for (const Window& window : windows) {
    if (window != kNoCache) ++counts[window];
  }
  CacheGroups groups;
  groups.layers_per_block = LayersPerBlock(counts);
  std::map<Window, LayerCachePlace> next;  // by window
  for (const auto& [window, count] : counts) {
    next[window].group = groups.num_groups();
    groups.windows.insert(groups.windows.end(), RoundedUpQuotient(count, groups.layers_per_block),
                          window);
  }
  for (const Window& window : windows) {
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

std::vector<Window> LayerWindows(const ModelSpec& spec) {
  std::vector<Window> windows;
  for (const LayerSpec& layer : spec.layers) {
    windows.push_back(CacheOf(layer.attention, {}).window);
  }
  return windows;
}

std::vector<Window> CacheWindows(const ModelSpec& spec, bool on_gpu) {
  std::vector<Window> windows = LayerWindows(spec);
  for (Window& window : windows) {
    if (on_gpu && window != kNoCache) window = 0;
  }
  return windows;
}

int64_t FirstBlockInUse(const Window& window, int64_t position, int64_t block_size) {
  return window.OldestSeen(position) / block_size;
}

int64_t MaxBlocksAtOnce(absl::Span<const Window> group_windows, int64_t num_tokens,
                        int64_t step_tokens, int64_t block_size) {
  const int64_t whole = RoundedUpQuotient(num_tokens, block_size);
  int64_t blocks = 0;
  for (const Window& window : group_windows) {
    // The first token of a step sees size - 1 tokens before it. A block may begin anywhere among
    // them, but for chunks of whole blocks.
    const bool aligned = window.chunked && window.size % block_size == 0;
    const int64_t in_use =
        RoundedUpQuotient(window.size - 1 + step_tokens, block_size) + (aligned ? 0 : 1);
    blocks += window.IsLimited() ? std::min(whole, in_use) : whole;
  }
  return blocks;
}

}  // namespace tandem::model
