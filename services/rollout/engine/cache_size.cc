#include "services/rollout/engine/cache_size.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/model/cache_groups.h"
#include "common/model/model_cache.h"
#include "common/model/numerics.h"
#include "common/model/rotary_frequencies.h"

namespace tandem::rollout {
namespace {

// Sequences at their longest that the cache has room for at most, for each that may run. Episodes that
// wait for their environment hold no place of a batch, and find their tokens here when they come back.
constexpr int64_t kCachedPerRunning = 8;

// Returns the longest sequence that `num_blocks` blocks hold alone, of at most `most` tokens.
int64_t LongestSequence(const EngineOptions& options, absl::Span<const model::Window> windows,
                        int64_t num_blocks, int64_t most) {
  const auto fits = [&](int64_t num_tokens) {
    return model::MaxBlocksAtOnce(windows, num_tokens, options.scheduler.max_num_batched_tokens,
                                  options.block_size) <= num_blocks;
  };
  if (fits(most)) return most;
  int64_t low = 0;  // fits; `most` does not
  while (most - low > 1) {
    const int64_t middle = low + (most - low) / 2;
    (fits(middle) ? low : most) = middle;
  }
  return low;
}

}  // namespace

absl::StatusOr<CacheSize> SizeCache(const EngineOptions& options, const model::Transformer& model) {
  const model::ModelSpec& spec = model.spec();
  if (options.scheduler.max_num_seqs < 1 || options.scheduler.max_num_batched_tokens < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rollout.max_num_seqs and rollout.max_num_batched_tokens: expected 1 or more, found ",
        options.scheduler.max_num_seqs, " and ", options.scheduler.max_num_batched_tokens));
  }
  if (spec.vision.has_value()) {
    RETURN_IF_ERROR(model::CheckStepTokens(*spec.vision, options.scheduler.max_num_seqs,
                                           options.scheduler.max_num_batched_tokens));
  }
  if (options.max_model_len < 0 || options.max_model_len > spec.max_position_embeddings) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rollout.max_model_len: expected 0 or at most the model's max_position_embeddings ",
        spec.max_position_embeddings, ", found ", options.max_model_len));
  }
  // Beyond it the keys in the cache would have to rotate otherwise.
  const int64_t longest_generation = model::LongestGeneration(spec);
  if (options.max_model_len > longest_generation) {
    return absl::InvalidArgumentError(
        absl::StrCat("rollout.max_model_len: the model's rotary embedding (rope type dynamic or "
                     "longrope) changes "
                     "for all tokens of a sequence that grows beyond ",
                     longest_generation, " tokens, so longer ones cannot be generated; found ",
                     options.max_model_len, "; use 0 or at most ", longest_generation));
  }
  CacheSize size;
  size.max_model_len = options.max_model_len == 0 ? longest_generation : options.max_model_len;
  const model::TensorParallel parallel = model.table().tensor_parallel();
  // Latents give other bits than the trainer's keys and values.
  const bool exact = model::CurrentNumerics() == model::Numerics::kExact;
  const model::LatentCache latents =
      exact ? model::LatentCache::kExpanded : model::LatentCache::kLatents;
  ASSIGN_OR_RETURN(size.cache, model::CacheOfModel(spec, parallel, latents, options.device));
  size.cache.block_size = options.block_size;
  size.cache.dtype = options.dtype;
  size.cache.states =
      model::StatesOfModel(spec, parallel, options.scheduler.max_num_seqs, options.dtype);
  // The rank with the most heads decides.
  const model::CacheGroups cache_groups =
      model::GroupsOfModel(spec, parallel.size, !options.device.is_cpu(), latents);
  const int64_t block_bytes = cache_groups.size * options.block_size *
                              static_cast<int64_t>(c10::elementSize(options.dtype));
  const std::vector<model::Window>& windows = cache_groups.windows;
  const auto groups = static_cast<int64_t>(windows.size());
  const int64_t longest = model::MaxBlocksAtOnce(
      windows, size.max_model_len, options.scheduler.max_num_batched_tokens, options.block_size);
  size.cache.num_blocks =
      std::min(options.kv_cache_bytes / block_bytes,
               kCachedPerRunning * options.scheduler.max_num_seqs * (longest + groups));
  if (size.cache.num_blocks < 2 * groups) {
    return absl::InvalidArgumentError(
        absl::StrCat("rollout.kv_cache_megabytes: a block of ", options.block_size,
                     " tokens takes ", block_bytes, " bytes, and the cache needs at least ",
                     2 * groups, " blocks; found ", options.kv_cache_bytes, " bytes"));
  }
  size.max_model_len = LongestSequence(options, windows, size.cache.num_blocks, size.max_model_len);
  return size;
}

}  // namespace tandem::rollout
