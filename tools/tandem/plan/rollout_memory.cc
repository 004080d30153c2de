#include "tools/tandem/plan/rollout_memory.h"

#include <algorithm>
#include <vector>

#include "common/model/cache_groups.h"
#include "common/model/default_cache.h"

namespace tandem::plan {
namespace {

int64_t SequencesInCache(const config::v1::RunConfig& config, const model::ModelSpec& spec,
                         int64_t cache_bytes, int64_t element_bytes, bool on_gpu) {
  const model::LatentCache latents = config.numerics() == config::v1::NUMERICS_EXACT
                                         ? model::LatentCache::kExpanded
                                         : model::LatentCache::kLatents;
  const config::v1::RolloutConfig& rollout = config.rollout();
  const int tp = std::max<int>(1, rollout.tensor_model_parallel_size());
  const std::vector<int64_t> windows =
      model::GroupLayers(model::CacheWindows(spec, on_gpu)).windows;
  const int64_t block_size = rollout.block_size();
  const int64_t block_bytes = element_bytes * block_size *
                              model::ModelCacheElementsPerToken(spec, tp, on_gpu, latents) /
                              static_cast<int64_t>(windows.size());
  const int64_t num_blocks = cache_bytes / block_bytes;
  const int64_t longest = config.data().max_prompt_length() + rollout.max_tokens();
  const auto blocks_at_once = [&](int64_t step_tokens) {
    return model::MaxBlocksAtOnce(windows, longest, step_tokens, block_size);
  };
  // One must fit alone while its prompt is computed; of many almost all decode.
  if (num_blocks < blocks_at_once(rollout.max_num_batched_tokens())) return 0;
  return num_blocks / blocks_at_once(1);
}

// Elements per token that attention holds beside its input and its result.
int64_t AttentionRow(const model::AttentionSpec& spec, int64_t tp) {
  const int64_t of_heads =
      spec.q_size() + spec.attended_size() + spec.kv_size() + spec.v_size();  // on all ranks
  if (!spec.latent.has_value()) return of_heads / tp;
  // Projections before their heads are joined, and the latents, which every rank makes.
  // Without keys and values there are queries and sums as long as latents.
  const int64_t projections =
      spec.q_size() + std::max(spec.num_heads * (spec.nope_dim() + spec.value_dim()),
                               2 * spec.num_heads * (spec.latent->kv_rank + spec.latent->rope_dim));
  return (of_heads + projections) / tp + 2 * (spec.latent->q_rank + spec.latent->kv_rank) +
         2 * spec.latent->rope_dim;
}

// Elements per token that a feed-forward layer holds beside its input and its result.
int64_t FeedForwardRow(const model::LayerSpec& layer, int64_t hidden_size, int64_t tp) {
  if (!layer.experts.has_value()) return 3 * layer.feed_forward.intermediate_size / tp;
  const model::ExpertSpec& experts = *layer.experts;
  const int64_t of_expert = 2 * hidden_size + 3 * experts.intermediate_size / tp;
  const int64_t of_shared = experts.shared_intermediate_size > 0
                                ? 2 * hidden_size + 3 * experts.shared_intermediate_size / tp
                                : 0;
  return experts.routing.top_k * of_expert + of_shared;
}

// `memory`: the rest of the rank's.
int64_t CacheBytes(const config::v1::RolloutConfig& rollout, const Hardware& hardware,
                   const RolloutMemory& memory) {
  if (rollout.kv_cache_megabytes() > 0) return rollout.kv_cache_megabytes() << 20;
  if (!hardware.is_gpu) return model::kDefaultCacheBytesOnCpu;
  return model::DefaultCacheBytesOnGpu(hardware.memory_bytes - hardware.reserved_bytes -
                                       memory.total());
}

}  // namespace

RolloutMemory PredictRolloutMemory(const config::v1::RunConfig& config,
                                   const model::ModelSpec& spec, const Hardware& hardware,
                                   int64_t bucket_bytes) {
  const bool on_gpu = hardware.is_gpu;
  const config::v1::RolloutConfig& rollout = config.rollout();
  const int64_t tp = std::max<int64_t>(1, rollout.tensor_model_parallel_size());
  const int64_t element = config.model().dtype() == config::v1::ELEMENT_TYPE_FLOAT32 ? 4 : 2;
  RolloutMemory memory;
  // Ignores norms, which are on every rank: they are negligible beside the matrices.
  memory.weights = 2 * spec.num_parameters() / tp * element;
  // packed_arena.h holds matrices that are looked up and multiplied by in both orders.
  if (!on_gpu && spec.tie_word_embeddings) {
    memory.packed = 2 * spec.vocab_size * spec.hidden_size / tp * element;
  }
  for (const model::LayerSpec& layer : spec.layers) {
    if (on_gpu || !layer.attention.latent.has_value()) continue;
    memory.packed += layer.attention.UpProjectionElements() / tp * element;
  }
  memory.transfer = 2 * bucket_bytes;
  const int64_t tokens = rollout.max_num_batched_tokens();
  const int64_t sequences = std::min(tokens, rollout.max_num_seqs());
  // A step's tensors live until their layer's end.
  int64_t row = 0;
  for (const model::LayerSpec& layer : spec.layers) {
    row = std::max(row,
                   AttentionRow(layer.attention, tp) + FeedForwardRow(layer, spec.hidden_size, tp));
  }
  row += 4 * spec.hidden_size;
  memory.temporaries = tokens * row * element + sequences * spec.vocab_size * 4;
  memory.kv_cache = CacheBytes(rollout, hardware, memory);
  memory.sequences = SequencesInCache(config, spec, memory.kv_cache, element, on_gpu);
  return memory;
}

}  // namespace tandem::plan
