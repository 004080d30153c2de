// CacheGroups: how the layers of a model share the blocks of its KV cache. Layers with the same
// window need a sequence's blocks for equally long, so they form a group. A block holds keys and
// values of one group's layers; every block has the same size and can serve any group. A model whose
// layers all see all tokens has one group. Layers with linear attention cache nothing per token and
// are in none.
//
//   CacheGroups groups = GroupLayers({0, 512, 512, 512});   // windows of the layers
//   groups.windows;                                         // {0, 512, 512, 512}
//   groups.layers_per_block;                                // 1
//
// Where layers cache keys and values of different sizes, those of a group have one size too, and a
// block holds more layers of a group with small ones:
//
//   groups = GroupLayers({0, 0, 512, 512}, {1, 1, 2, 2});   // and their sizes
//   groups.windows;                                         // {0, 512, 512}
//   groups.size;                                            // 2
#ifndef TANDEM_COMMON_MODEL_CACHE_GROUPS_H_
#define TANDEM_COMMON_MODEL_CACHE_GROUPS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/model/model_spec.h"

namespace tandem::model {

// A sequence's block table has one entry for each group at each block position, the groups of a
// position side by side: the entry of group g at position i is table[i * num_groups() + g]. The
// entry is kNoBlock once the block has left the group's window.
inline constexpr int32_t kNoBlock = -1;

// Where a layer's keys and values are: in the blocks of a group, at a layer's place of the block.
struct LayerCachePlace {
  int64_t group = 0;
  int64_t index = 0;  // below layers_per_block

  friend bool operator==(const LayerCachePlace&, const LayerCachePlace&) = default;
};

struct CacheGroups {
  int64_t layers_per_block = 0;  // at most
  // Of a block: the sizes of the layers of the largest group, added up.
  int64_t size = 0;
  std::vector<Window> windows;          // of each group
  std::vector<LayerCachePlace> layers;  // of each layer; without meaning for one that has no cache

  int64_t num_groups() const { return static_cast<int64_t>(windows.size()); }
};

// `windows`: of each layer; kNoCache: none, but not of all layers. `sizes`: of what each layer caches of
// a token, in any unit; empty: alike, 1. Layers with one window may form several groups, so that little
// of a block stays unused.
CacheGroups GroupLayers(absl::Span<const Window> windows, absl::Span<const int64_t> sizes = {});

// Windows of the model's layers, or kNoCache.
std::vector<Window> LayerWindows(const ModelSpec& spec);

// The windows by which a cache frees the layers' blocks. On a GPU none does: attention masks what a
// window hides, and keeps it.
std::vector<Window> CacheWindows(const ModelSpec& spec, bool on_gpu);

// Elements that each layer caches of a token on the rank of `tensor_ranks` with the most heads; 0 for one
// without a cache.
std::vector<int64_t> CacheSizes(const ModelSpec& spec, int tensor_ranks, bool on_gpu,
                                LatentCache latents = LatentCache::kExpanded);

// The groups of the model's layers by CacheWindows() and CacheSizes(), the same on all ranks; on a GPU one
// of all layers, whatever their sizes.
CacheGroups GroupsOfModel(const ModelSpec& spec, int tensor_ranks, bool on_gpu,
                          LatentCache latents = LatentCache::kExpanded);

// Returns the first block position that tokens from `position` on see.
int64_t FirstBlockInUse(const Window& window, int64_t position, int64_t block_size);

// The maximum number of blocks, of all groups, that a sequence of `num_tokens` tokens holds at once
// if each step computes at most `step_tokens` of them.
int64_t MaxBlocksAtOnce(absl::Span<const Window> group_windows, int64_t num_tokens,
                        int64_t step_tokens, int64_t block_size);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_CACHE_GROUPS_H_
