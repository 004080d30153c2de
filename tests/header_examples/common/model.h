// What the usage examples in common/model leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_MODEL_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_MODEL_H_

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>
#include <vector>

#include "common/io/read_file.h"
#include "common/model/cache_groups.h"
#include "common/model/carried_tensors.h"
#include "common/model/device_processor.h"
#include "common/model/device_row_ops.h"
#include "common/model/eager_ops.h"
#include "common/model/grouped_linear.h"
#include "common/model/image_attention.h"
#include "common/model/image_places.h"
#include "common/model/latent_heads.h"
#include "common/model/packed_attention.h"
#include "common/model/stored_writer.h"
#include "common/model/tile_tower.h"
#include "common/model/transformer.h"
#include "common/model/vision_tower.h"

namespace tandem::model::model_names {
extern ModelSpec spec;
extern Transformer model;
extern ParameterProvider& params;
extern Attention& attention;
extern PagedKvCache cache;
extern Rotary rotary;
extern int64_t layer;
extern at::Tensor token_ids, positions, targets, temperatures, x;
extern std::vector<PagedSequence> sequences;
extern at::Tensor cu_seqlens;
}  // namespace tandem::model::model_names

namespace tandem::model::arena_example {
using namespace model_names;
extern io::ModelFolder folder;
}  // namespace tandem::model::arena_example

namespace tandem::model::attention_plan_example {
using namespace model_names;
}  // namespace tandem::model::attention_plan_example

namespace tandem::model::cache_groups_example {
extern CacheGroups groups;
}  // namespace tandem::model::cache_groups_example

namespace tandem::model::carried_tensors_example {
using namespace model_names;
void Hold(int maker, const std::vector<int>& readers);
}  // namespace tandem::model::carried_tensors_example

namespace tandem::model::delta_attention_example {
extern DeltaSpec spec;
extern DeltaTensors tensors;
extern at::Tensor cu_seqlens;
}  // namespace tandem::model::delta_attention_example
namespace tandem::model::device::device_delta_attention_example {
extern DeltaSpec spec;
extern DeltaTensors tensors;
extern at::Tensor cu_seqlens, out;
extern at::Device gpu;
}  // namespace tandem::model::device::device_delta_attention_example

namespace tandem::model::device_attention_example {
using namespace model_names;
extern int64_t num_heads;
}  // namespace tandem::model::device_attention_example

namespace tandem::model::expert_load_example {
using namespace model_names;
void Use(int64_t rows);
}  // namespace tandem::model::expert_load_example

namespace tandem::model::expert_recorder_example {
using namespace model_names;
extern RoutedLayout layout;
extern int64_t num_tokens, first_token, count;
void Use(absl::Span<const uint16_t> experts);
}  // namespace tandem::model::expert_recorder_example

namespace tandem::model::expert_replay_example {
using namespace model_names;
extern RoutedLayout layout;
extern at::Tensor experts;
}  // namespace tandem::model::expert_replay_example

namespace tandem::model::expert_rows_example {
using namespace model_names;
extern at::Tensor experts, token_weights;
extern int64_t num_experts;
extern std::vector<at::Tensor> weights, biases;
extern std::vector<const kernels::PackedMatrix*> packed;
}  // namespace tandem::model::expert_rows_example

namespace tandem::model::expert_exchange_example {
using namespace expert_rows_example;
extern comm::ProcessGroup& group;
}  // namespace tandem::model::expert_exchange_example

namespace tandem::model::frozen_parameters_example {
using namespace model_names;
}  // namespace tandem::model::frozen_parameters_example

namespace tandem::model::head_example {
using namespace model_names;
extern at::Tensor hidden, weight;
}  // namespace tandem::model::head_example

namespace tandem::model::cpu_attention_example {
extern at::Tensor q, k, v, cu_seqlens;
extern AttentionParams params;
}  // namespace tandem::model::cpu_attention_example

namespace tandem::model::image_attention_example {
extern at::Tensor q, k, v;
extern AttentionParams params;
}  // namespace tandem::model::image_attention_example

namespace tandem::model::image_places_example {
extern ModelSpec spec;
extern std::vector<int64_t> token_ids;
}  // namespace tandem::model::image_places_example

namespace tandem::model::image_forms_example {
extern ModelSpec spec;
extern std::vector<int64_t> token_ids;
}  // namespace tandem::model::image_forms_example

namespace tandem::model::packed_tiles_example {
extern VisionSpec spec;
}  // namespace tandem::model::packed_tiles_example

namespace tandem::model::vision_tower_example {
using namespace model_names;
extern at::Tensor pixel_values;
extern std::vector<ImageGrid> grids;
extern ImagePlaces places;
}  // namespace tandem::model::vision_tower_example

namespace tandem::model::tile_tower_example {
using namespace model_names;
extern at::Tensor pixel_values;
extern std::vector<ImageGrid> grids;
}  // namespace tandem::model::tile_tower_example

namespace tandem::model::kernel_function_example {
using namespace model_names;
using torch::autograd::variable_list;
extern Norm norm;
}  // namespace tandem::model::kernel_function_example

namespace tandem::model::latent_heads_example {
using namespace model_names;
extern at::Tensor q, shared, kv;
extern LatentShape shape;
}  // namespace tandem::model::latent_heads_example

namespace tandem::model::absorbed_heads_example {
extern Attention& attention;
extern AttentionParams params;
extern int64_t layer;
extern at::Tensor q, latent, shared, up;
extern LatentShape shape;
extern RotaryAngles angles;
}  // namespace tandem::model::absorbed_heads_example

namespace tandem::model::load_parameters_example {
extern io::ModelFolder folder;
extern ParameterTable table;
extern int64_t first, count;
extern float* shard;
}  // namespace tandem::model::load_parameters_example

namespace tandem::model::model_cache_example {
extern ModelSpec spec;
}  // namespace tandem::model::model_cache_example

namespace tandem::model::norm_example {
extern NormSpec spec;
extern at::Tensor x, weight, bias;
}  // namespace tandem::model::norm_example

namespace tandem::model::rotary_frequencies_example {
using namespace model_names;
}  // namespace tandem::model::rotary_frequencies_example

namespace tandem::model::rotary_tables_example {
using namespace model_names;
}  // namespace tandem::model::rotary_tables_example

namespace tandem::model::packed_arena_example {
using namespace model_names;
extern size_t segment;
extern std::vector<std::byte> bytes;
}  // namespace tandem::model::packed_arena_example

namespace tandem::model::packed_places_example {
extern std::vector<int64_t> cu_seqlens;
}  // namespace tandem::model::packed_places_example

namespace tandem::model::paged_attention_example {
using namespace model_names;
extern std::vector<int32_t> table;
}  // namespace tandem::model::paged_attention_example

namespace tandem::model::paged_kv_cache_example {
using namespace model_names;
extern PagedKvCacheOptions options;
}  // namespace tandem::model::paged_kv_cache_example

namespace tandem::model::processor_example {
extern at::Device device;
}  // namespace tandem::model::processor_example

namespace tandem::model::recurrent_states_example {
extern std::vector<std::optional<DeltaSpec>> deltas;
}  // namespace tandem::model::recurrent_states_example

namespace tandem::model::recomputation_example {
using namespace model_names;
extern Transformer transformer;
extern at::Tensor y;
}  // namespace tandem::model::recomputation_example

namespace tandem::model::router_rows_example {
extern RoutingSpec spec;
extern int64_t num_experts;
extern float *logits, *weights;
extern int64_t* chosen;
}  // namespace tandem::model::router_rows_example

namespace tandem::model::sequence_parallel_attention_example {
using namespace model_names;
extern comm::ProcessGroup& group;
}  // namespace tandem::model::sequence_parallel_attention_example

namespace tandem::model::step_memory_example {
extern int64_t num_tokens, hidden;
}  // namespace tandem::model::step_memory_example

namespace tandem::model::stored_layout_example {
extern ParameterTable table;
extern io::ModelFolder folder;
void Use(const std::string& tensor, const std::vector<int64_t>& strides);
}  // namespace tandem::model::stored_layout_example

namespace tandem::model::stored_source_example {
extern io::ModelFolder folder;
extern StoredLayout layout;
extern int64_t first, count;
extern float* shard;
}  // namespace tandem::model::stored_source_example

namespace tandem::model::stored_view_example {
extern const std::byte* bytes;
extern std::byte* out;
}  // namespace tandem::model::stored_view_example

namespace tandem::model::stored_writer_example {
extern StoredLayout layout;
extern io::ModelFolder source;
extern io::ModelFolderWriter::Options options;
absl::Span<const std::byte> ElementsOf(const StoredPiece& piece);
}  // namespace tandem::model::stored_writer_example

namespace tandem::model::transformer_example {
using namespace model_names;
}  // namespace tandem::model::transformer_example

namespace tandem::model::worker_pool_example {
void RunStep();
}  // namespace tandem::model::worker_pool_example

namespace tandem::model::routed_experts_example {
using namespace model_names;
extern int64_t num_tokens;
}  // namespace tandem::model::routed_experts_example

namespace tandem::model::router_losses_example {
using namespace model_names;
extern at::Tensor token_weights, logits, experts;
extern double total_rows;
extern int64_t num_experts;
void AllReduce(at::Tensor& sums);
void Backward();
}  // namespace tandem::model::router_losses_example

namespace tandem::model::router_pass_example {
using namespace model_names;
extern ExpertLoad load;
}  // namespace tandem::model::router_pass_example

namespace tandem::model::soft_targets_example {
using namespace head_example;
extern at::Tensor ids, teacher_logprobs;
}  // namespace tandem::model::soft_targets_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_MODEL_H_
