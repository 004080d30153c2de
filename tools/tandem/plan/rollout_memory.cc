#include "tools/tandem/plan/rollout_memory.h"

#include <algorithm>
#include <vector>

#include "common/config/summary.h"
#include "common/model/cache_groups.h"
#include "common/model/delta_sizes.h"
#include "common/model/gpu_memory.h"
#include "common/model/images/pixel_cache.h"
#include "common/model/parameter_table.h"
#include "tools/tandem/plan/tower_memory.h"

namespace tandem::plan {
namespace {

int64_t SequencesInCache(const config::v1::RunConfig& config, const model::ModelSpec& spec,
                         int64_t cache_bytes, int64_t element_bytes, bool on_gpu) {
  const model::LatentCache latents = config.numerics() == config::v1::NUMERICS_EXACT
                                         ? model::LatentCache::kExpanded
                                         : model::LatentCache::kLatents;
  const config::v1::RolloutConfig& rollout = config.rollout();
  const int tp = std::max<int>(1, rollout.tensor_model_parallel_size());
  const model::CacheGroups groups = model::GroupsOfModel(spec, tp, on_gpu, latents);
  const int64_t block_size = rollout.block_size();
  const int64_t block_bytes = element_bytes * block_size * groups.size;
  const int64_t num_blocks = cache_bytes / block_bytes;
  const int64_t longest = config.data().max_prompt_length() + config::LongestCompletion(config);
  const auto blocks_at_once = [&](int64_t step_tokens) {
    return model::MaxBlocksAtOnce(groups.windows, longest, step_tokens, block_size);
  };
  // One must fit alone while its prompt is computed; of many almost all decode.
  if (num_blocks < blocks_at_once(rollout.max_num_batched_tokens())) return 0;
  return num_blocks / blocks_at_once(1);
}

// Elements per token, of so many bytes, that attention holds beside its input and its result.
int64_t AttentionRow(const model::AttentionSpec& spec, int64_t tp, int64_t element, bool on_gpu) {
  if (spec.delta.has_value()) {
    const int64_t tensors = spec.delta->projected_size() + spec.delta->value_size();
    // On a GPU what the recurrence reads and its results, in float32 (common/model/cuda_delta_forward.cc).
    const int64_t floats = on_gpu ? spec.delta->convolved_size() + spec.delta->value_size() +
                                        2 * spec.delta->num_value_heads
                                  : int64_t{0};
    return (tensors + floats * 4 / element) / tp;
  }
  const int64_t of_keys = spec.reads_other_kv() ? 0 : spec.kv_size() + spec.v_size();
  const int64_t of_heads = spec.q_size() + spec.attended_size() + of_keys;  // on all ranks
  if (!spec.latent.has_value()) {
    const int64_t scaled = spec.value_scale != 1.0 ? spec.attended_size() : 0;
    // Values of their own, and those that are keys, which lie behind a copy of queries and keys.
    const int64_t values = (spec.value_norm.has_value() ? 2 * spec.v_size() : 0) +
                           (spec.values_are_keys ? spec.q_size() + 2 * spec.kv_size() : 0);
    return (of_heads + scaled + values + (spec.output_gate ? 2 * spec.attended_size() : 0)) / tp;
  }
  // Projections before their heads are joined, and the latents, which every rank makes.
  // Without keys and values there are queries and sums as long as latents.
  const int64_t projections =
      spec.q_size() + std::max(spec.num_heads * (spec.nope_dim() + spec.value_dim()),
                               2 * spec.num_heads * (spec.latent->kv_rank + spec.latent->rope_dim));
  return (of_heads + projections) / tp + 2 * (spec.latent->q_rank + spec.latent->kv_rank) +
         2 * spec.latent->rope_dim;
}

// Elements per row that products with the two matrices hold beside their input and their result: the
// first one's columns, gate and up or up alone, and what the activation makes of them.
int64_t IntermediateRow(const model::ParameterTable& table, int gate_up, int down, int64_t tp) {
  return (table.parameter(gate_up).shape.front() + table.parameter(down).shape.back()) / tp;
}

// Elements per token that a feed-forward layer holds beside its input and its result. `table` is of
// the whole model. Routed experts are split over `expert_tp` ranks: 1 if ranks hold whole ones, to one of
// which all rows may go.
int64_t FeedForwardRow(const model::ParameterTable& table, int64_t layer, int64_t tp,
                       int64_t expert_tp) {
  const model::LayerParameters& parameters = table.layer(layer);
  const auto dense = [&](const model::FeedForwardParameters& at) {
    return IntermediateRow(table, at.gate_up_weight, at.down_weight, tp);
  };
  if (!parameters.experts.has_value()) return dense(parameters.feed_forward);
  const model::ExpertSpec& spec = *table.spec().layers[layer].experts;
  // Results of both, and what both read, beside the experts' rows.
  const int64_t of_dense = spec.beside_dense
                               ? 5 * table.spec().hidden_size + dense(parameters.feed_forward)
                               : int64_t{0};
  const model::ExpertParameters& experts = *parameters.experts;
  const int64_t in_and_out = 2 * table.spec().hidden_size;  // rows of an expert are its own
  const int64_t of_expert = in_and_out + IntermediateRow(table, experts.gate_up.weights.front(),
                                                         experts.down.weights.front(), expert_tp);
  const int64_t of_shared =
      experts.shared.has_value() ? in_and_out + dense(*experts.shared) : int64_t{0};
  return spec.routing.top_k * of_expert + of_shared + of_dense;
}

// What linear attention keeps of `sequences` sequences (common/model/recurrent_states.h).
int64_t StateBytes(const model::ModelSpec& spec, int64_t sequences, int64_t element) {
  int64_t bytes = 0;
  for (const model::LayerSpec& layer : spec.layers) {
    if (!layer.attention.delta.has_value()) continue;
    const model::kernels::DeltaShape sizes = model::SizesOf(*layer.attention.delta);
    bytes += sizes.state_floats() * 4 + sizes.tail_elements() * element;
  }
  return bytes * sequences;
}

// What encoding a step's images takes: as many patches as the step may have tokens, or those of the
// largest image of a prompt.
int64_t TowerBytes(const config::v1::RunConfig& config, const model::ParameterTable& table,
                   int64_t element_bytes, bool on_gpu) {
  const model::VisionSpec& vision = *table.spec().vision;
  const int64_t tokens = config.rollout().max_num_batched_tokens();
  const int64_t prompt_length = config.data().max_prompt_length();
  const int64_t rows = std::max<int64_t>(tokens / vision.patches_per_row(), prompt_length);
  ImageLoad load = LoadOf(vision, rows, rows);
  if (vision.tiles.has_value() && vision.tiles->canvas.has_value()) {
    // Rows of an image alone are fewer than its patches.
    load = LoadOf(vision, prompt_length, prompt_length);
    load.patches = std::max(load.patches, tokens);
  }
  CountedBatch text;
  text.element_bytes = element_bytes;
  if (on_gpu) text.kernels = setup::Kernels::kPlain;
  MemoryLedger ledger;
  TowerMemory tower(ledger, table, text, load);
  const Size pixels = ledger.Take(MemoryKind::kActivations, tower.pixel_bytes());
  tower.Forward(/*has_graph=*/false);
  return ledger.peak().total();
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
  const int64_t weights = spec.num_parameters() / tp * element;
  memory.states = StateBytes(spec, rollout.max_num_seqs(), element) / tp;
  const bool stages =
      !on_gpu || model::StagesWeightsOnGpu(hardware.memory_bytes - hardware.reserved_bytes, weights,
                                           (rollout.kv_cache_megabytes() << 20) + memory.states);
  memory.weights = (stages ? 2 : 1) * weights;
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
  const model::ParameterTable table(spec);
  for (int64_t i = 0; i < spec.num_layers(); ++i) {
    row = std::max(
        row, AttentionRow(spec.layers[i].attention, tp, element, on_gpu) +
                 FeedForwardRow(table, i, tp, rollout.enable_expert_parallel() ? int64_t{1} : tp));
  }
  row += 4 * spec.hidden_size;
  // Inputs of layers are there from the first to the last; four are made before, each of the one before.
  if (spec.layer_inputs.has_value()) {
    row = std::max(row + spec.layer_input_size() + 4 * spec.layer_inputs->size,
                   4 * spec.layer_input_size() + 2 * spec.hidden_size);
  }
  memory.temporaries = tokens * row * element + sequences * spec.vocab_size * 4;
  if (spec.vision.has_value()) {
    // Images are encoded after the step's tokens are computed.
    memory.temporaries = std::max(memory.temporaries, TowerBytes(config, table, element, on_gpu));
    // Pixels stay in host memory.
    memory.images =
        model::kImageRowBytes + (on_gpu ? int64_t{0} : model::PixelCache::kDefaultBytes);
  }
  memory.kv_cache = CacheBytes(rollout, hardware, memory);
  memory.sequences = SequencesInCache(config, spec, memory.kv_cache, element, on_gpu);
  return memory;
}

}  // namespace tandem::plan
