// Checks whether a model can be computed on a device, or split over a number of ranks: over a
// tensor-parallel group (tensor_parallel.h), over ranks that share sequences
// (sequence_parallel_attention.h), and over ranks with different experts (expert_exchange.h).
#ifndef TANDEM_COMMON_MODEL_PARALLEL_FIT_H_
#define TANDEM_COMMON_MODEL_PARALLEL_FIT_H_

#include <string>

#include "absl/status/status.h"
#include "common/model/model_spec.h"
#include "common/model/parameter_table.h"

namespace tandem::model {

// Whether several ranks may hold the same key-value head. Its gradients would need a sum over those
// ranks, so only inference allows it.
enum class KvHeadCopies { kNone, kAllowed };

// INVALID_ARGUMENT if a rank would have no head, no inner unit or no vocabulary row; names both
// numbers.
absl::Status CheckTensorParallel(const ModelSpec& spec, int size,
                                 KvHeadCopies copies = KvHeadCopies::kNone);

// INVALID_ARGUMENT if the heads that a rank of `tensor_ranks` computes cannot be split over
// `ranks`: the number of query heads must be a multiple of `ranks`, and the number of key-value
// heads a multiple or a divisor (several ranks then hold the same head). Names both numbers. UNIMPLEMENTED for
// linear attention over several ranks.
absl::Status CheckSequenceParallel(const ModelSpec& spec, int tensor_ranks, int ranks);

// INVALID_ARGUMENT if the model has no experts, or if a layer's cannot be split evenly over `size`
// ranks, or if one rank would train more elements of them than another, because `limits` freeze some.
// Names the numbers.
absl::Status CheckExpertParallel(const ModelSpec& spec, const UnitLimits& limits, int size);

// Whether `size` tensor-parallel ranks of a rollout can hold whole experts, each rank as many as the
// others. INVALID_ARGUMENT names rollout.enable_expert_parallel.
absl::Status CheckWholeExperts(const ModelSpec& spec, int size);

// UNIMPLEMENTED for heads of linear attention above kMaxDeltaHeadDimOnGpu (delta_sizes.h) on a GPU.
absl::Status CheckTrainerDevice(const ModelSpec& spec, bool on_gpu);

// Checks whether a rollout on `device`, "cpu", "auto" (or empty) or a GPU, can compute the model:
// on a GPU UNIMPLEMENTED for heads of linear attention above kMaxDeltaHeadDimOnGpu, and for heads and
// latents beyond those that its attention takes (gpu_head_sizes.h).
absl::Status CheckRolloutDevice(const ModelSpec& spec, const std::string& device);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_PARALLEL_FIT_H_
