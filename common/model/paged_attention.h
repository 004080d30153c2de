// PagedAttention: causal attention of a batch's new tokens over a paged cache. The rollout uses it
// for decoding and for chunked prefill.
//
//   PagedAttention attention(cache, {{.first_token = 0, .num_tokens = 5, .context_length = 5,
//                                     .blocks = table.data()}});
//   x = model.Block(params, layer, x, rotary, attention);
#ifndef TANDEM_COMMON_MODEL_PAGED_ATTENTION_H_
#define TANDEM_COMMON_MODEL_PAGED_ATTENTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/model/attention.h"
#include "common/model/paged_kv_cache.h"

namespace tandem::model {

// The new tokens of one sequence: the last `num_tokens` of its `context_length` tokens.
struct PagedSequence {
  int64_t first_token = 0;     // first row in the batch
  int64_t num_tokens = 0;      // rows of the batch
  int64_t context_length = 0;  // tokens in the cache after this batch
  // Block table of tokens 0 .. context_length - 1 (cache_groups.h). Blocks that have left the window
  // are not read. Outlives the call.
  const int32_t* blocks = nullptr;
  // Of the sequence's state (recurrent_states.h); read for models with linear attention alone.
  int32_t state = -1;
  // Behind the last position that each new token sees, [num_tokens]: at most context_length, and never
  // falling; null: a token sees up to itself. Outlives the call.
  const int64_t* seen_ends = nullptr;
};

// A row's result depends only on the row and its sequence's cache: keys are processed in a fixed
// order in runs of a fixed length, whatever shares the batch and however the prompt was chunked.
// Accumulates in float32. Not differentiable. CPU only.
class PagedAttention : public Attention {
 public:
  // `cache` outlives the attention.
  explicit PagedAttention(const PagedKvCache& cache,
                          absl::Span<const PagedSequence> sequences = {});

  // Starts another batch.
  void Begin(absl::Span<const PagedSequence> sequences);

  // Writes the new tokens' k and v into the cache, then attends.
  at::Tensor Forward(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionParams& params) override;
  bool KeepsKeys() const override { return true; }
  // Writes nothing.
  at::Tensor ForwardQueries(int64_t kv_layer, const at::Tensor& q,
                            const AttentionParams& params) override;
  bool CachesLatents() const override { return cache_.options().shared; }
  at::Tensor ForwardLatents(int64_t layer, const at::Tensor& q, const at::Tensor& latents,
                            const AttentionParams& params) override;
  // Reads and replaces the sequences' states.
  at::Tensor ForwardDelta(int64_t layer, const DeltaSpec& spec,
                          const DeltaTensors& tensors) override;
  // Like Forward(); for a plain rotation, and values that are not normed, in one pass, which rotates
  // heads where they are written and read. All tensors have the cache's type; norms are contiguous.
  at::Tensor ForwardProjected(int64_t layer, const at::Tensor& qkv, const HeadRotation& rotation,
                              const AttentionParams& params) override;

 private:
  // One thread's unit of work: some tokens of a sequence.
  struct Tile {
    int32_t sequence;
    int32_t first_token;  // counted from the sequence's first new token
    int32_t num_tokens;
  };

  // Tiles for layers of which so many query heads share a key-value head.
  struct Tiling {
    int64_t heads_per_kv_head;
    std::vector<Tile> tiles;
  };

  const std::vector<Tile>& TilesFor(int64_t heads_per_kv_head);
  template <template <typename> typename Heads>
  at::Tensor Attended(int64_t layer, int64_t num_tokens, int64_t num_heads,
                      const AttentionParams& params, const auto&... from);
  template <typename T>
  void Run(int64_t layer, const std::vector<Tile>& tiles, const auto& heads,
           const AttentionParams& params, const at::Tensor& sinks, bool parallel,
           at::Tensor& out) const;

  const PagedKvCache& cache_;
  std::vector<PagedSequence> sequences_;
  std::vector<Tiling> tilings_;  // those that layers of the batch have asked for
  int64_t num_scores_ = 0;       // pairs of a new token and a key: the amount of work
  bool decode_only_ = true;      // every sequence has one new token
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_PAGED_ATTENTION_H_
