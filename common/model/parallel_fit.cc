#include "common/model/parallel_fit.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/cache_groups.h"
#include "common/model/delta_sizes.h"
#include "common/model/gpu_head_sizes.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

absl::Status CheckEnough(int size, const char* what, int64_t count) {
  if (size <= count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tensor parallelism over ", size, " ranks: the model has ", count, " ", what,
                   ", but each rank needs at least one; use at most ", count, " ranks"));
}

absl::Status CheckHeads(const AttentionSpec& spec, int size, KvHeadCopies copies) {
  if (copies == KvHeadCopies::kNone) {
    return CheckEnough(size, "key-value heads", spec.num_kv_heads);
  }
  RETURN_IF_ERROR(CheckEnough(size, "query heads", spec.num_heads));
  // The ranks of one key-value head split the query heads that share it.
  const int64_t most = (size + spec.num_kv_heads - 1) / spec.num_kv_heads;
  const int64_t heads_of_each = spec.num_heads / spec.num_kv_heads;
  if (most <= heads_of_each) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor parallelism over ", size, " ranks: ", most, " of them would share one of ",
      spec.num_kv_heads, " key-value heads, which ", heads_of_each,
      " query heads read, but each rank needs at least one; use at most ",
      heads_of_each * spec.num_kv_heads, " ranks"));
}

absl::Status CheckNorms(const AttentionSpec& spec, int size) {
  if (size == 1 || !spec.qk_norm.has_value() || spec.qk_norm->over != QkNormSpec::Over::kAllHeads) {
    return absl::OkStatus();
  }
  if (spec.qk_norm->norm.kind == NormKind::kRms && !spec.qk_norm->after_rotation) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat(
      "tensor parallelism over ", size,
      " ranks: the model norms all heads of q and k at once, by a LayerNorm or after the rotation; "
      "only an RMS norm before the rotation can be split; use 1 rank"));
}

absl::Status CheckFeedForward(const LayerSpec& layer, int size) {
  if (layer.has_dense()) {
    RETURN_IF_ERROR(CheckEnough(size, "inner units of a feed-forward layer",
                                layer.feed_forward.intermediate_size));
  }
  if (!layer.experts.has_value()) return absl::OkStatus();
  const ExpertSpec& experts = *layer.experts;
  RETURN_IF_ERROR(CheckEnough(size, "inner units of an expert", experts.intermediate_size));
  if (experts.shared_intermediate_size == 0) return absl::OkStatus();
  return CheckEnough(size, "inner units of a shared expert", experts.shared_intermediate_size);
}

absl::Status CheckSequences(const AttentionSpec& spec, TensorParallel parallel, int ranks) {
  const AttentionPart part = PartOf(spec, parallel);
  const int64_t heads = part.heads.size();
  const int64_t kv_heads = part.kv_heads.size();
  const bool fits =
      heads % ranks == 0 && kv_heads > 0 && (kv_heads % ranks == 0 || ranks % kv_heads == 0);
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "sequence parallelism over ", ranks, " ranks: ", heads, " query heads and ", kv_heads,
      " key-value heads", parallel.size > 1 ? absl::StrCat(" of tensor rank ", parallel.rank) : "",
      " cannot be split over them; use a size that divides the query heads and that divides, or is "
      "a multiple of, the key-value heads"));
}

}  // namespace

absl::Status CheckTensorParallel(const ModelSpec& spec, int size, KvHeadCopies copies) {
  if (size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor parallelism: expected 1 or more ranks, found ", size));
  }
  for (const LayerSpec& layer : spec.layers) {
    if (layer.attention.delta.has_value()) {
      RETURN_IF_ERROR(
          CheckEnough(size, "key heads of linear attention", layer.attention.delta->num_key_heads));
    }
    RETURN_IF_ERROR(CheckHeads(layer.attention, size, copies));
    RETURN_IF_ERROR(CheckNorms(layer.attention, size));
    RETURN_IF_ERROR(CheckFeedForward(layer, size));
  }
  return CheckEnough(size, "vocabulary rows", spec.vocab_size);
}

absl::Status CheckSequenceParallel(const ModelSpec& spec, int tensor_ranks, int ranks) {
  if (ranks < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("sequence parallelism: expected 1 or more ranks, found ", ranks));
  }
  if (ranks > 1 && spec.HasLinearAttention()) {
    return absl::UnimplementedError(
        absl::StrCat("sequence parallelism over ", ranks,
                     " ranks: the model has linear attention, which computes a sequence from its "
                     "first token on; "
                     "use 1 rank, and dp_shard or tp to divide memory"));
  }
  for (const LayerSpec& layer : spec.layers) {
    for (int r = 0; r < tensor_ranks; ++r) {
      RETURN_IF_ERROR(CheckSequences(layer.attention, {r, tensor_ranks}, ranks));
    }
  }
  return absl::OkStatus();
}

namespace {

// Elements of each unit, and which of them are trained.
std::vector<std::pair<int64_t, bool>> SizesOf(const ParameterTable& table) {
  std::vector<std::pair<int64_t, bool>> sizes;
  for (const Unit& unit : table.units()) sizes.emplace_back(unit.numel, unit.trainable);
  return sizes;
}

// What to do about experts that ranks cannot share evenly, and about a model without experts.
struct ExpertRemedies {
  const char* of_uneven;
  const char* of_none;
};

// INVALID_ARGUMENT, which begins with `what`, unless there are experts and `size` divides those of every
// layer.
absl::Status CheckExpertsDivide(const ModelSpec& spec, int size, const std::string& what,
                                const ExpertRemedies& remedies) {
  bool has_experts = false;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (!spec.layers[i].experts.has_value()) continue;
    has_experts = true;
    const int64_t experts = spec.layers[i].experts->num_experts;
    if (experts % size == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": layer ", i, " has ", experts, " experts, which ", size,
                     " ranks cannot share evenly; ", remedies.of_uneven));
  }
  if (has_experts) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": the model has no experts; ", remedies.of_none));
}

}  // namespace

absl::Status CheckExpertParallel(const ModelSpec& spec, const UnitLimits& limits, int size) {
  if (size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("expert parallelism: expected 1 or more ranks, found ", size));
  }
  if (size == 1) return absl::OkStatus();
  RETURN_IF_ERROR(CheckExpertsDivide(spec, size,
                                     absl::StrCat("expert parallelism over ", size, " ranks"),
                                     {.of_uneven = "use an ep that divides the experts",
                                      .of_none = "use dp_shard in place of ep"}));
  const auto first = SizesOf(ParameterTable(spec, limits, {}, {0, size}));
  for (int rank = 1; rank < size; ++rank) {
    if (SizesOf(ParameterTable(spec, limits, {}, {rank, size})) == first) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "expert parallelism over ", size,
        " ranks: trainer.frozen_parameters freezes experts of "
        "rank ",
        rank, " that differ from those of rank 0; freeze the same matrices of all experts"));
  }
  return absl::OkStatus();
}

absl::Status CheckWholeExperts(const ModelSpec& spec, int size) {
  return CheckExpertsDivide(
      spec, size, "rollout.enable_expert_parallel",
      {.of_uneven = "use a rollout.tensor_model_parallel_size that divides the experts, or "
                    "rollout.enable_expert_parallel=false",
       .of_none = "set it to false"});
}

namespace {

// What the kernels of a GPU do not take of linear attention; empty: they take all of it.
std::string TooLargeForDelta(const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    if (!layer.attention.delta.has_value()) continue;
    const int64_t dim = std::max(layer.attention.delta->key_dim, layer.attention.delta->value_dim);
    if (dim <= kMaxDeltaHeadDimOnGpu) continue;
    return absl::StrCat("linear attention with heads of ", dim, " elements, more than ",
                        kMaxDeltaHeadDimOnGpu);
  }
  return "";
}

}  // namespace

absl::Status CheckTrainerDevice(const ModelSpec& spec, bool on_gpu) {
  const std::string part = TooLargeForDelta(spec);
  if (!on_gpu || part.empty()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "the model has ", part,
      ", which a trainer on a GPU does not support; use machines without GPUs, or hide "
      "theirs with CUDA_VISIBLE_DEVICES="));
}

namespace {

// What attention over a cache on a GPU does not take; empty: it takes all of it.
std::string TooLargeForCache(const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec& attention = layer.attention;
    if (attention.delta.has_value()) continue;
    const int64_t head = std::max(attention.head_dim, attention.value_dim());
    if (head > kMaxHeadDimOnGpu) {
      return absl::StrCat("heads of ", head, " elements, more than ", kMaxHeadDimOnGpu);
    }
    if (!attention.latent.has_value()) continue;
    const int64_t latent = attention.latent->kv_rank;
    const int64_t cached = latent + attention.latent->rope_dim;
    if (latent > kMaxHeadDimOnGpu || cached > kMaxLatentDimOnGpu) {
      return absl::StrCat("latents of ", latent, " elements, ", cached,
                          " with their rotated part, more than ", kMaxHeadDimOnGpu, " and ",
                          kMaxLatentDimOnGpu);
    }
  }
  return "";
}

}  // namespace

absl::Status CheckRolloutDevice(const ModelSpec& spec, const std::string& device) {
  // A rollout with auto computes such a model on the CPU.
  if (device.empty() || device == "auto" || device == "cpu") return absl::OkStatus();
  std::string part = TooLargeForDelta(spec);
  if (part.empty()) part = TooLargeForCache(spec);
  if (!part.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("rollout.device: ", device, ": the model has ", part,
                     ", which a rollout on a GPU does not support; use rollout.device=cpu"));
  }
  return absl::OkStatus();
}

}  // namespace tandem::model
