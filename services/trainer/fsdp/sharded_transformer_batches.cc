// ShardedTransformer: checks a batch and puts it on the device.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/device/upload.h"
#include "common/model/image_places.h"
#include "common/model/rotary_frequencies.h"
#include "common/model/sequence_parallel_attention.h"
#include "common/status/status_macros.h"
#include "services/trainer/data/shared_prefix.h"
#include "services/trainer/fsdp/sequence_slice.h"
#include "services/trainer/fsdp/sharded_transformer.h"
namespace tandem::trainer {
namespace {

bool RotatesByLength(const model::ModelSpec& spec) {
  return std::any_of(spec.ropes.begin(), spec.ropes.end(), model::DependsOnLength);
}

// A batch that predicts nothing, for a rank without rows whose peers' rows its experts compute.
PackedBatch OneToken() {
  PackedBatch batch;
  batch.token_ids = batch.positions = at::zeros({1}, at::kLong);
  batch.cu_seqlens = {0, 1};
  batch.rows = batch.targets = at::empty({0}, at::kLong);
  batch.temperatures = at::empty({0}, at::kFloat);
  return batch;
}

// Returns the length of the whole sequence of each token of a rank's slice: int64 [tokens of the
// slice].
at::Tensor SliceLengths(const SequenceSlice& slice, int rank) {
  const int64_t tokens = slice.token_ids.numel();
  at::Tensor ends = at::empty({static_cast<int64_t>(slice.cu_seqlens.size())}, at::kLong);
  std::copy(slice.cu_seqlens.begin(), slice.cu_seqlens.end(), ends.mutable_data_ptr<int64_t>());
  return model::PackedLengths(ends).narrow(0, rank * tokens, tokens);
}

// What PackedAttention takes of a batch whose images' placeholders see one another. cu_seqlens: the
// batch's, padding included. Undefined without images.
at::Tensor SeenEndsOf(const PackedBatch& batch, const std::vector<int64_t>& cu_seqlens) {
  if (!batch.image_rows.defined()) return {};
  const auto* const rows = batch.image_rows.const_data_ptr<int64_t>();
  at::Tensor ends = at::empty({cu_seqlens.back()}, at::kLong);
  auto* to = ends.mutable_data_ptr<int64_t>();
  std::vector<int64_t> placeholders;
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    // A prefix that is another sequence's does not end within an image.
    const int64_t prefix = 2 * s < batch.prefixes.size() ? batch.prefixes[2 * s + 1] : 0;
    const int64_t first = cu_seqlens[s] - prefix;
    placeholders.clear();
    for (int64_t t = cu_seqlens[s]; t < std::min(cu_seqlens[s + 1], batch.num_tokens()); ++t) {
      if (rows[t] >= 0) placeholders.push_back(t - first);
    }
    const std::vector<int64_t> of_sequence =
        model::SeenEnds(placeholders, prefix, cu_seqlens[s + 1] - first);
    to = std::copy(of_sequence.begin(), of_sequence.end(), to);
  }
  return ends;
}

}  // namespace

absl::Status ShardedTransformer::CheckBatch(const PackedBatch& batch) const {
  const int64_t num_tokens = batch.num_tokens();
  const auto check = [](const at::Tensor& tensor, int64_t size, at::ScalarType dtype,
                        const char* name) -> absl::Status {
    if (size == 0 && !tensor.defined()) return absl::OkStatus();
    if (tensor.defined() && tensor.dim() == 1 && tensor.size(0) == size &&
        tensor.scalar_type() == dtype) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "packed batch: ", name, " should be ", c10::toString(dtype), " [", size, "], found ",
        tensor.defined()
            ? absl::StrCat(c10::toString(tensor.scalar_type()), " of ", tensor.numel(), " elements")
            : "nothing"));
  };
  const int64_t num_rows = batch.rows.defined() ? batch.rows.numel() : 0;
  if (routed_layout_.has_value() && batch.routed_experts.defined()) {
    const at::Tensor& experts = batch.routed_experts;
    if (experts.dim() != 2 || experts.size(0) != num_tokens ||
        experts.size(1) != routed_layout_->values_per_token() ||
        experts.scalar_type() != at::kInt) {
      return absl::InvalidArgumentError(
          absl::StrCat("packed batch: routed_experts should be Int [", num_tokens, ", ",
                       routed_layout_->values_per_token(), "], found ",
                       c10::toString(experts.scalar_type()), " of ", experts.numel(), " elements"));
    }
  }
  RETURN_IF_ERROR(check(batch.token_ids, num_tokens, at::kLong, "token_ids"));
  if (batch.image_rows.defined()) {
    RETURN_IF_ERROR(check(batch.image_rows, num_tokens, at::kLong, "image_rows"));
    RETURN_IF_ERROR(CheckImages(batch));
  } else {
    RETURN_IF_ERROR(check(batch.positions, num_tokens, at::kLong, "positions"));
  }
  RETURN_IF_ERROR(check(batch.rows, num_rows, at::kLong, "rows"));
  RETURN_IF_ERROR(check(batch.targets, num_rows, at::kLong, "targets"));
  RETURN_IF_ERROR(check(batch.temperatures, num_rows, at::kFloat, "temperatures"));
  if (batch.soft_ids.defined() && num_rows > 0) {
    const int64_t num_soft = num_rows * batch.soft_ids.size(-1);
    RETURN_IF_ERROR(check(batch.soft_ids.flatten(), num_soft, at::kLong, "soft_ids"));
    RETURN_IF_ERROR(check(batch.soft_weights.flatten(), num_soft, at::kFloat, "soft_weights"));
  }
  if (num_rows > num_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("packed batch: ", num_rows, " rows to predict from ", num_tokens, " tokens"));
  }
  return absl::OkStatus();
}

absl::Status ShardedTransformer::CheckImages(const PackedBatch& batch) const {
  if (!transformer_.spec().vision.has_value() || batch.images == nullptr) {
    return absl::InvalidArgumentError(
        "packed batch: image_rows needs images, and a model with a vision tower");
  }
  const int64_t num_tokens = batch.num_tokens();
  if (batch.positions.dim() == 2 && batch.positions.size(0) == 3 &&
      batch.positions.size(1) == num_tokens && batch.positions.scalar_type() == at::kLong) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("packed batch: positions should be Long [3, ",
                                                 num_tokens, "] with images, found ",
                                                 batch.positions.numel(), " elements"));
}

ShardedTransformer::Pass ShardedTransformer::MakePass(const PackedBatch& batch) const {
  Pass pass;
  pass.place = "batch";
  pass.without_rows = batch.num_tokens() == 0 || !batch.rows.defined() || batch.rows.numel() == 0;
  pass.empty = pass.without_rows && transformer_.expert_group() == nullptr;
  pass.update_tokens = batch.update_tokens;
  if (pass.empty) return pass;
  if (pass.without_rows) {
    FillPass(OneToken(), pass);
    return pass;
  }
  FillPass(batch, pass);
  return pass;
}

void ShardedTransformer::FillPass(const PackedBatch& batch, Pass& pass) const {
  comm::ProcessGroup& group = options_.mesh->sequence();
  // Computes common prefixes once if our kernels do the attention.
  // Not for a model that rotates a prefix by the length of its whole sequence, nor for linear
  // attention, whose state at a prefix's end would have to be kept.
  const bool by_length = RotatesByLength(transformer_.spec());
  const bool shares = SharesPrefixes(options_.device, group.size()) && !options_.eager_attention &&
                      !by_length && !transformer_.spec().HasLinearAttention();
  PackedBatch whole = batch;
  // Prefixes that differ in nothing else are shared.
  if (!routed_layout_.has_value()) whole.routed_experts = at::Tensor();
  const PackedBatch shared = shares ? SharePrefixes(whole) : whole;
  pass.slice = SliceOf(shared, group.rank(), group.size());
  if (router_losses_ != nullptr || expert_use_ != nullptr) {
    pass.token_uses = device::Upload(
        TokensOfSlice(TokenUses(shared), /*padding=*/0.0, group.rank(), group.size()),
        options_.device);
  }
  pass.token_ids = device::Upload(pass.slice.token_ids, options_.device);
  pass.positions = device::Upload(pass.slice.positions, options_.device);
  pass.rows = device::Upload(pass.slice.rows, options_.device);
  pass.targets = device::Upload(pass.slice.targets, options_.device);
  pass.temperatures = device::Upload(pass.slice.temperatures, options_.device);
  if (pass.slice.image_rows.defined()) AddImages(*shared.images, pass);
  if (pass.slice.soft_ids.defined()) {
    pass.soft_ids = device::Upload(pass.slice.soft_ids, options_.device);
    pass.soft_weights = device::Upload(pass.slice.soft_weights, options_.device);
    pass.soft_targets_only = shared.soft_targets_only;
  }
  if (routed_layout_.has_value() && shared.routed_experts.defined()) {
    const at::Tensor experts =
        TokensOfSlice(shared.routed_experts, /*padding=*/-1, group.rank(), group.size())
            .view({-1, routed_layout_->num_layers(), routed_layout_->top_k()});
    pass.replay = std::make_unique<model::ExpertReplay>(*routed_layout_,
                                                        device::Upload(experts, options_.device));
  }
  pass.rotary = transformer_.MakeRotary(
      pass.positions, by_length ? SliceLengths(pass.slice, group.rank()) : at::Tensor());
  const std::vector<int64_t>& ends = pass.slice.cu_seqlens;
  at::Tensor cu_seqlens = at::empty({static_cast<int64_t>(ends.size())}, at::kLong);
  std::copy(ends.begin(), ends.end(), cu_seqlens.mutable_data_ptr<int64_t>());
  using Implementation = model::PackedAttention::Implementation;
  at::Tensor prefixes;
  if (!shared.prefixes.empty()) {
    prefixes = at::empty({shared.num_sequences(), 2}, at::kLong);
    std::copy(shared.prefixes.begin(), shared.prefixes.end(), prefixes.mutable_data_ptr<int64_t>());
  }
  const auto& vision = transformer_.spec().vision;
  const bool sees_ahead = vision.has_value() && vision->images_see_ahead;
  pass.attention = std::make_unique<model::PackedAttention>(
      std::move(cu_seqlens),
      options_.eager_attention ? Implementation::kEager : Implementation::kFast, prefixes,
      sees_ahead ? SeenEndsOf(shared, ends) : at::Tensor());
  pass.distinct_rows = shared.prefixes.empty();
  // Rows in order and distinct, as many as there are tokens, are all of them.
  pass.all_rows = pass.distinct_rows && pass.rows.numel() == pass.token_ids.numel();
  if (group.size() > 1) {
    pass.whole_attention = std::move(pass.attention);
    pass.attention =
        std::make_unique<model::SequenceParallelAttention>(*pass.whole_attention, group);
  }
}

void ShardedTransformer::AddImages(BatchImages& images, Pass& pass) const {
  const at::Tensor tokens = pass.slice.image_rows.ge(0).nonzero().squeeze(1);
  if (tokens.numel() == 0) return;
  pass.images = images.PatchesOf(pass.slice.image_indices);
  if (!options_.device.is_cpu()) {
    // Once, in the type in which the tower reads them.
    pass.images.pixel_values =
        device::Upload(pass.images.pixel_values.to(options_.compute_dtype), options_.device);
  }
  pass.image_tokens = device::Upload(tokens, options_.device);
  pass.image_rows = device::Upload(pass.slice.image_rows.index_select(0, tokens), options_.device);
}

}  // namespace tandem::trainer
