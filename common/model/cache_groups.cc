#include "common/model/cache_groups.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace tandem::model {
namespace {

// More groups would waste less memory on unused places, and cost more bookkeeping in each step. Layers of
// several sizes need more groups to fill blocks well.
constexpr int64_t kMaxGroups = 8;
constexpr int64_t kMaxGroupsOfSizes = 16;

int64_t RoundedUpQuotient(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Layers that may be in one group.
struct Kind {
  Window window;
  int64_t size;

  friend bool operator<(const Kind& a, const Kind& b) {
    return a.window == b.window ? a.size < b.size : a.window < b.window;
  }
};

// `counts`: layers of each kind. Returns the size of a block that leaves the least unused; among equals
// the largest, which makes the fewest groups.
int64_t BestBlock(const std::map<Kind, int64_t>& counts) {
  std::set<int64_t> sizes;  // of layers
  for (const auto& [kind, count] : counts) sizes.insert(kind.size);
  std::set<int64_t> blocks;  // that some kind fills
  for (const auto& [kind, count] : counts) {
    for (int64_t layers = 1; layers <= count; ++layers) {
      if (layers * kind.size >= *sizes.rbegin()) blocks.insert(layers * kind.size);
    }
  }
  const int64_t max_groups = sizes.size() == 1 ? kMaxGroups : kMaxGroupsOfSizes;
  int64_t best = blocks.empty() ? 0 : *blocks.rbegin();
  int64_t least = 0;  // of all groups' blocks
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    int64_t groups = 0;
    int64_t filled = 0;
    for (const auto& [kind, count] : counts) {
      const int64_t layers = std::min(count, *block / kind.size);
      groups += RoundedUpQuotient(count, layers);
      filled = std::max(filled, layers * kind.size);
    }
    if (least > 0 && groups > max_groups) break;
    if (least > 0 && groups * filled >= least) continue;
    best = *block;
    least = groups * filled;
  }
  return best;
}

}  // namespace

CacheGroups GroupLayers(absl::Span<const Window> windows, absl::Span<const int64_t> sizes) {
  const auto kind_of = [&](size_t layer) {
    return Kind{windows[layer], sizes.empty() ? 1 : sizes[layer]};
  };
  std::map<Kind, int64_t> counts;
  for (size_t i = 0; i < windows.size(); ++i) {
    if (windows[i] != kNoCache) ++counts[kind_of(i)];
  }
  const int64_t block = BestBlock(counts);
  CacheGroups groups;
  std::map<Kind, LayerCachePlace> next;
  for (const auto& [kind, count] : counts) {
    const int64_t layers = std::min(count, block / kind.size);
    groups.layers_per_block = std::max(groups.layers_per_block, layers);
    groups.size = std::max(groups.size, layers * kind.size);
    next[kind].group = groups.num_groups();
    groups.windows.insert(groups.windows.end(), RoundedUpQuotient(count, layers), kind.window);
  }
  for (size_t i = 0; i < windows.size(); ++i) {
    if (windows[i] == kNoCache) {
      groups.layers.emplace_back();
      continue;
    }
    LayerCachePlace& place = next[kind_of(i)];
    groups.layers.push_back(place);
    if (++place.index == block / kind_of(i).size) place = {place.group + 1, 0};
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

std::vector<int64_t> CacheSizes(const ModelSpec& spec, int tensor_ranks, bool on_gpu,
                                LatentCache latents) {
  std::vector<int64_t> sizes;
  for (const LayerSpec& layer : spec.layers) {
    CacheSpec cache = CacheOf(layer.attention, {}, latents);
    if (!cache.shared) cache.num_kv_heads = MostKvHeads(layer.attention, tensor_ranks);
    sizes.push_back(cache.window == kNoCache ? 0 : CacheElementsPerToken(cache, on_gpu));
  }
  return sizes;
}

CacheGroups GroupsOfModel(const ModelSpec& spec, int tensor_ranks, bool on_gpu,
                          LatentCache latents) {
  const std::vector<Window> windows = CacheWindows(spec, on_gpu);
  const std::vector<int64_t> sizes = CacheSizes(spec, tensor_ranks, on_gpu, latents);
  if (!on_gpu) return GroupLayers(windows, sizes);
  CacheGroups groups = GroupLayers(windows);
  groups.size = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  return groups;
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
