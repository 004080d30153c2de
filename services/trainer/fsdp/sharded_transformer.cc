#include "services/trainer/fsdp/sharded_transformer.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/comm/shareable_memory.h"
#include "common/device/upload.h"
#include "common/model/parallel_fit.h"
#include "common/model/rotary_frequencies.h"
#include "common/model/sequence_parallel_attention.h"
#include "common/model/soft_targets.h"
#include "common/model/tensor_collectives.h"
#include "common/sharding/shard_extent.h"
#include "common/status/status_macros.h"
#include "common/weights/bfloat16_cast.h"
#include "services/trainer/data/shared_prefix.h"
#include "services/trainer/fsdp/guarded.h"
#include "services/trainer/fsdp/sequence_slice.h"
#include "services/trainer/fsdp/shard_init.h"
#include "services/trainer/fsdp/tensor_memory.h"

namespace tandem::trainer {
namespace {

// Gradients of `outputs` with respect to those of `inputs` that require grad; undefined for the
// others and for those that the outputs do not depend on. Frees the graph.
std::vector<at::Tensor> GradientsOf(const std::vector<at::Tensor>& outputs,
                                    const std::vector<at::Tensor>& output_gradients,
                                    const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> wanted;
  for (const at::Tensor& input : inputs) {
    if (input.requires_grad()) wanted.push_back(input);
  }
  std::vector<at::Tensor> gradients(inputs.size());
  if (wanted.empty()) return gradients;
  const std::vector<at::Tensor> found =
      torch::autograd::grad(outputs, wanted, output_gradients, /*retain_graph=*/false,
                            /*create_graph=*/false, /*allow_unused=*/true);
  size_t next = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].requires_grad()) gradients[i] = found[next++];
  }
  return gradients;
}

// Below this many elements, casting is faster than waking a thread for it.
constexpr int64_t kElementsOfThread = int64_t{1} << 16;

// Whether MasterChanged() can digest the compute shard: the master itself, or our own cast of it.
bool KeepsDigests(const at::Tensor& computed, const at::Tensor& master) {
  return computed.is_cpu() && (computed.is_same(master) || computed.scalar_type() == at::kBFloat16);
}

sharding::Saves SavesOf(ActivationCheckpointing checkpointing) {
  switch (checkpointing) {
    case ActivationCheckpointing::kFull:
      return sharding::Saves::kNothing;
    case ActivationCheckpointing::kSelective:
      return sharding::Saves::kSelected;
    case ActivationCheckpointing::kNone:
      break;
  }
  return sharding::Saves::kEverything;
}

std::string StageName(int64_t stage) {
  return stage == 0 ? "embed" : absl::StrCat("layers.", stage - 1);
}

bool RotatesByLength(const model::ModelSpec& spec) {
  return std::any_of(spec.ropes.begin(), spec.ropes.end(), model::DependsOnLength);
}

int64_t NumExperts(const model::ModelSpec& spec) {
  for (const model::LayerSpec& layer : spec.layers) {
    if (layer.experts.has_value()) return layer.experts->num_experts;
  }
  return 0;
}

int64_t NumExpertLayers(const model::ModelSpec& spec) {
  return std::count_if(spec.layers.begin(), spec.layers.end(),
                       [](const model::LayerSpec& layer) { return layer.experts.has_value(); });
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

// Of the head of a language model.
model::LogProbs LogProbsOf(const std::vector<at::Tensor>& results) {
  return {results[0], results.size() > 1 ? results[1] : at::Tensor(), {}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardedModel>> ShardedModel::Create(ShardedModelOptions options) {
  if (options.mesh == nullptr) {
    return absl::InvalidArgumentError("ShardedModelOptions.mesh is null; make a device mesh first");
  }
  if (options.compute_dtype != at::kFloat && options.compute_dtype != at::kBFloat16) {
    return absl::InvalidArgumentError(
        absl::StrCat("compute dtype: expected float32 or bfloat16, found ",
                     c10::toString(options.compute_dtype)));
  }
  if (options.prefetch_units < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("prefetch_units: expected 0 or more, found ", options.prefetch_units));
  }
  if (options.activation_checkpointing_interval < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("activation_checkpointing_interval: expected 1 or more blocks, found ",
                     options.activation_checkpointing_interval));
  }
  const comm::MeshShape& shape = options.mesh->shape();
  RETURN_IF_ERROR(model::CheckTensorParallel(options.spec, shape.tp));
  RETURN_IF_ERROR(model::CheckSequenceParallel(options.spec, shape.tp, shape.sequence));
  RETURN_IF_ERROR(model::CheckExpertParallel(options.spec, options.unit_limits, shape.ep));
  RETURN_IF_ERROR(model::CheckTrainerDevice(options.spec, !options.device.is_cpu()));
  if (options.replays_routing) {
    RETURN_IF_ERROR(model::RoutedLayout::Of(options.spec).status());
  }
  if (options.device.is_cpu()) TensorMemory::Install();
  ASSIGN_OR_RETURN(std::shared_ptr<device::Device> device, device::Device::Create(options.device));
  ASSIGN_OR_RETURN(std::unique_ptr<StateMemory> state_memory,
                   StateMemory::Create(options.offload, options.offload_folder, options.device));
  const int rank = options.mesh->rank();
  return Guarded<absl::StatusOr<std::unique_ptr<ShardedModel>>>(rank, "allocating shards", [&] {
    return std::make_unique<ShardedTransformer>(std::move(options), std::move(device),
                                                std::move(state_memory));
  });
}

ShardedTransformer::ShardedTransformer(ShardedModelOptions options,
                                       std::shared_ptr<device::Device> device,
                                       std::unique_ptr<StateMemory> state_memory)
    : options_(std::move(options)),
      transformer_(options_.spec, options_.unit_limits, &options_.mesh->tensor(),
                   &options_.mesh->expert()),
      stages_(transformer_.table(), SavesOf(options_.activation_checkpointing),
              options_.activation_checkpointing_interval),
      device_(std::move(device)),
      side_(*device_),
      state_memory_(std::move(state_memory)),
      pool_(*device_),
      clock_(device_.get()),
      expert_load_(transformer_.spec()) {
  if (options_.replays_routing) {
    routed_layout_ = model::RoutedLayout::Of(transformer_.spec()).value();
  }
  if (options_.router_losses.any()) {
    router_losses_ = std::make_unique<model::RouterLosses>(
        options_.router_losses, NumExperts(transformer_.spec()), options_.device);
  }
  if (options_.unit_limits.moves_correction_biases && options_.trainable) {
    expert_use_ = std::make_unique<model::ExpertUse>(transformer_.spec(), options_.device);
  }
  const model::ParameterTable& table = transformer_.table();
  std::vector<at::Tensor> gradients;
  for (const model::Unit& unit : table.units()) {
    UnitShard shard;
    shard.numel = unit.numel;
    const comm::ProcessGroup& ranks =
        unit.of_experts ? options_.mesh->expert_shard() : options_.mesh->shard();
    const sharding::ShardExtent extent = sharding::ExtentOf(unit.numel, ranks.size());
    const int64_t owned = extent.owned;
    shard.padded_numel = extent.padded;
    shard.offset = owned * ranks.rank();
    // An update in compute type sends from these tensors in place, so they are shareable.
    const bool lends = options_.device.is_cpu() && options_.offload == Offload::kNone;
    const at::ScalarType compute_dtype = unit.in_float32 ? at::kFloat : options_.compute_dtype;
    const bool gather_masters = compute_dtype == at::kFloat && state_memory_->on_device();
    const auto compute_zeros = [&] {
      return lends ? comm::ShareableZeros(owned, compute_dtype)
                   : state_memory_->ComputeZeros(owned, compute_dtype);
    };
    if (!unit.trainable && !unit.moved) {
      // No step adds to these values, so they need no more digits than the forward pass reads.
      shard.computed = compute_zeros();
      shard.master = shard.computed;
    } else {
      shard.master = lends && gather_masters ? comm::ShareableZeros(owned, at::kFloat)
                                             : state_memory_->Zeros(owned);
      if (options_.trainable && unit.trainable) shard.grad = state_memory_->Zeros(owned);
      shard.computed = gather_masters ? shard.master : compute_zeros();
    }
    gradients.push_back(shard.grad);
    if (options_.keeps_digests && KeepsDigests(shard.computed, shard.master)) {
      shard.digests =
          std::make_shared<ShardDigests>(table, static_cast<int>(shards_.size()), shard.offset,
                                         owned, shard.computed.element_size());
    }
    compute_shards_.push_back(shard.computed);
    shards_.push_back(std::move(shard));
  }
  gatherer_ = std::make_unique<UnitGatherer>(
      UnitGatherer::Options{.table = &table,
                            .group = &options_.mesh->shard(),
                            .expert_group = &options_.mesh->expert_shard(),
                            .pool = &pool_,
                            .side = &side_,
                            .clock = &clock_,
                            .schedule = {.prefetch = options_.prefetch_units,
                                         .reshard_after_forward = options_.reshard_after_forward},
                            .trainable = options_.trainable},
      compute_shards_);
  if (options_.trainable) {
    reducer_ = std::make_unique<GradientReducer>(
        GradientReducer::Options{.table = &table,
                                 .mesh = options_.mesh,
                                 .pool = &pool_,
                                 .side = &side_,
                                 .clock = &clock_,
                                 .compute_dtype = options_.compute_dtype,
                                 .reduce_dtype = options_.reduce_dtype,
                                 .shared_unit = stages_.shared_unit()},
        std::move(gradients));
  }
}

absl::Status ShardedTransformer::Load(const io::ModelFolder& folder) {
  return Guarded<absl::Status>(options_.mesh->rank(), "loading", [&]() -> absl::Status {
    RETURN_IF_ERROR(LoadShards(folder, transformer_.table(), shards_));
    DrawMissingValueHead(transformer_.spec(), options_.value_head_seed, folder,
                         transformer_.table(), shards_);
    MastersChanged();
    return absl::OkStatus();
  });
}

absl::Status ShardedTransformer::RandomInit(uint64_t seed) {
  return Guarded<absl::Status>(options_.mesh->rank(), "drawing parameters", [&]() -> absl::Status {
    DrawShards(transformer_.spec(), seed, transformer_.table(), shards_);
    MastersChanged();
    return absl::OkStatus();
  });
}

absl::Status ShardedTransformer::ReduceGradients() {
  reducer_->ZeroUntouched();
  return reducer_->SumReplicas();
}

void ShardedTransformer::ZeroGradients() {
  if (reducer_ != nullptr) reducer_->Reset();
}

void ShardedTransformer::MastersChanged() {
  for (size_t u = 0; u < shards_.size(); ++u) {
    MasterChanged(static_cast<int>(u), 0, shards_[u].master.numel());
  }
}

void ShardedTransformer::MasterChanged(int unit, int64_t begin, int64_t end) {
  at::Tensor& compute_shard = compute_shards_[unit];
  const UnitShard& shard = shards_[unit];
  const bool is_master = compute_shard.is_same(shard.master);  // which then is what is gathered
  const bool casts =
      !is_master && compute_shard.is_cpu() && compute_shard.scalar_type() == at::kBFloat16;
  const at::NoGradGuard no_grad;
  if (casts || shard.digests != nullptr) {
    if (begin == 0 && shard.digests != nullptr) shard.digests->Clear();
    const float* const from = casts ? shard.master.const_data_ptr<float>() : nullptr;
    auto* const to = static_cast<std::byte*>(compute_shard.data_ptr());
    const int64_t element = compute_shard.element_size();
    at::parallel_for(begin, end, kElementsOfThread, [&](int64_t first, int64_t last) {
      // Portions that fit a core's cache.
      for (int64_t i = first; i < last; i += kElementsOfThread) {
        const int64_t stop = std::min(last, i + kElementsOfThread);
        // Casts like a sender of weights: every NaN to the same bits.
        if (casts) weights::CastToBfloat16(from + i, stop - i, to + i * element);
        if (shard.digests != nullptr) shard.digests->Add(i, stop, to + i * element);
      }
    });
  } else if (!is_master) {
    compute_shard.narrow(0, begin, end - begin).copy_(shard.master.narrow(0, begin, end - begin));
  }
  if (end < shard.master.numel()) return;
  Evict(shard.master);
  Evict(compute_shard);
}

int64_t ShardedTransformer::peak_tensor_bytes() const {
  return device_->on_host() ? TensorMemory::peak_bytes() : device_->peak_tensor_bytes();
}

MemoryBytes ShardedTransformer::memory_bytes() const {
  MemoryBytes bytes;
  for (size_t u = 0; u < shards_.size(); ++u) {
    bytes.parameters += static_cast<int64_t>(shards_[u].master.nbytes());
    if (!compute_shards_[u].is_same(shards_[u].master)) {
      bytes.parameters += static_cast<int64_t>(compute_shards_[u].nbytes());
    }
    if (shards_[u].grad.defined())
      bytes.gradients += static_cast<int64_t>(shards_[u].grad.nbytes());
  }
  bytes.buffers = pool_.allocated_bytes();
  bytes.offloaded = state_memory_->offloaded_bytes();
  return bytes;
}

template <typename Result, typename Steps>
absl::StatusOr<Result> ShardedTransformer::RunPass(const PackedBatch& batch, const char* what,
                                                   Steps steps) {
  RETURN_IF_ERROR(CheckBatch(batch));
  const int rank = options_.mesh->rank();
  Pass pass;
  absl::StatusOr<Result> result =
      Guarded<absl::StatusOr<Result>>(rank, what, [&]() -> absl::StatusOr<Result> {
        const at::NoGradGuard no_grad;
        pass = MakePass(batch);
        return steps(pass);
      });
  if (!result.ok() && options_.mesh->size() > 1) {
    // The peers wait for collectives that this rank will not enter.
    options_.mesh->Abort(result.status().message());
  }
  gatherer_->End();
  if (!result.ok()) return StatusBuilder(result.status()) << "in stage " << pass.place;
  return result;
}

absl::StatusOr<model::LogProbs> ShardedTransformer::Forward(const PackedBatch& batch) {
  RETURN_IF_ERROR(CheckHead(/*value_head=*/false));
  ASSIGN_OR_RETURN(HeadResults results, RunPass<HeadResults>(batch, "forward", [&](Pass& pass) {
                     return ForwardSteps(pass);
                   }));
  return LogProbsOf(results);
}

absl::StatusOr<model::LogProbs> ShardedTransformer::ForwardWithSquares(const PackedBatch& batch) {
  RETURN_IF_ERROR(CheckHead(/*value_head=*/false));
  ASSIGN_OR_RETURN(HeadResults results, RunPass<HeadResults>(batch, "forward", [&](Pass& pass) {
                     pass.sums_squares = true;
                     return ForwardSteps(pass);
                   }));
  return model::LogProbs{std::move(results[0]), std::move(results[1]), std::move(results[2])};
}

absl::StatusOr<at::Tensor> ShardedTransformer::ForwardValues(const PackedBatch& batch) {
  RETURN_IF_ERROR(CheckHead(/*value_head=*/true));
  ASSIGN_OR_RETURN(HeadResults results, RunPass<HeadResults>(batch, "forward", [&](Pass& pass) {
                     return ForwardSteps(pass);
                   }));
  return std::move(results[0]);
}

absl::StatusOr<at::Tensor> ShardedTransformer::QueueForwardBackward(const PackedBatch& batch,
                                                                    const LossFunction& loss) {
  return TrainHead(batch, /*value_head=*/false,
                   [&](const HeadResults& results) { return loss(LogProbsOf(results)); });
}

absl::StatusOr<at::Tensor> ShardedTransformer::QueueForwardBackwardValues(
    const PackedBatch& batch, const ValueLossFunction& loss) {
  return TrainHead(batch, /*value_head=*/true,
                   [&](const HeadResults& results) { return loss(results[0]); });
}

std::vector<std::vector<int64_t>> ShardedTransformer::TakeExpertRows() {
  std::vector<std::vector<int64_t>> rows = expert_load_.rows();
  expert_load_.Clear();
  return rows;
}

model::RouterLosses::Values ShardedTransformer::TakeRouterLosses() {
  return router_losses_ == nullptr ? model::RouterLosses::Values() : router_losses_->Take();
}

absl::Status ShardedTransformer::CheckHead(bool value_head) const {
  if (transformer_.spec().value_head == value_head) return absl::OkStatus();
  return absl::FailedPreconditionError(
      value_head ? "this model has a language-model head; values need a value head"
                 : "this model has a value head; log-probs need a language-model head");
}

absl::StatusOr<at::Tensor> ShardedTransformer::TrainHead(const PackedBatch& batch, bool value_head,
                                                         const HeadLoss& loss) {
  RETURN_IF_ERROR(CheckHead(value_head));
  if (!options_.trainable) {
    return absl::FailedPreconditionError(
        "ForwardBackward() needs a trainable model; this one is frozen and has no gradients");
  }
  return RunPass<at::Tensor>(batch, "forward and backward",
                             [&](Pass& pass) { return ForwardBackwardSteps(pass, loss); });
}

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
  if (options_.mesh->sequence().size() > 1) {
    return absl::UnimplementedError(
        "packed batch: images on ranks that split sequences; set "
        "trainer.ulysses_sequence_parallel_size to 1");
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
  if (shared.image_rows.defined()) AddImages(shared, pass);
  if (pass.slice.soft_ids.defined()) {
    pass.soft_ids = device::Upload(pass.slice.soft_ids, options_.device);
    pass.soft_weights = device::Upload(pass.slice.soft_weights, options_.device);
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
  pass.attention = std::make_unique<model::PackedAttention>(
      std::move(cu_seqlens),
      options_.eager_attention ? Implementation::kEager : Implementation::kFast, prefixes);
  pass.distinct_rows = shared.prefixes.empty();
  // Rows in order and distinct, as many as there are tokens, are all of them.
  pass.all_rows = pass.distinct_rows && pass.rows.numel() == pass.token_ids.numel();
  if (group.size() > 1) {
    pass.whole_attention = std::move(pass.attention);
    pass.attention =
        std::make_unique<model::SequenceParallelAttention>(*pass.whole_attention, group);
  }
}

void ShardedTransformer::AddImages(const PackedBatch& batch, Pass& pass) const {
  const at::Tensor tokens = batch.image_rows.ge(0).nonzero().squeeze(1);
  if (tokens.numel() == 0) return;
  pass.images = batch.images->PatchesOf(batch.image_indices);
  pass.images.pixel_values = device::Upload(pass.images.pixel_values, options_.device);
  pass.image_tokens = device::Upload(tokens, options_.device);
  pass.image_rows = device::Upload(batch.image_rows.index_select(0, tokens), options_.device);
}

at::Tensor ShardedTransformer::Embed(const Pass& pass) const {
  const at::Tensor x = transformer_.Embed(*gatherer_, pass.token_ids, pass.positions);
  if (!pass.image_tokens.defined()) return x;
  // An image of several sequences is encoded once, and its gradient is the sum of theirs.
  const at::Tensor rows = model::EncodeImages(transformer_, *gatherer_, pass.images);
  return model::PutImages(x, pass.image_tokens, rows.index_select(0, pass.image_rows));
}

at::Tensor ShardedTransformer::SelectRows(const Pass& pass, const at::Tensor& x) const {
  return pass.all_rows ? x : x.index_select(0, pass.rows);
}

ShardedTransformer::HeadResults ShardedTransformer::RunHead(const Pass& pass,
                                                            const at::Tensor& selected) const {
  const at::Tensor hidden = transformer_.FinalNorm(*gatherer_, selected);
  if (transformer_.spec().value_head) return {transformer_.Values(*gatherer_, hidden)};
  if (pass.soft_ids.defined()) {
    return {model::HeadSoftLogProbs(transformer_, *gatherer_, hidden,
                                    {pass.soft_ids, pass.soft_weights}, pass.temperatures)};
  }
  if (pass.sums_squares) {
    model::LogProbs out =
        transformer_.HeadLogProbsAndSquares(*gatherer_, hidden, pass.targets, pass.temperatures);
    return {std::move(out.logprobs), std::move(out.entropy), std::move(out.sum_pi_squared)};
  }
  model::LogProbs out =
      transformer_.HeadLogProbs(*gatherer_, hidden, pass.targets, pass.temperatures);
  return {std::move(out.logprobs), std::move(out.entropy)};
}

std::vector<at::Tensor> ShardedTransformer::StageLeaves(int stage) const {
  std::vector<at::Tensor> leaves;
  for (const int index : transformer_.table().stage_parameters(stage))
    leaves.push_back(gatherer_->Get(index));
  return leaves;
}

absl::Status ShardedTransformer::AddGradients(int stage, absl::Span<const at::Tensor> gradients) {
  const std::vector<int>& parameters = transformer_.table().stage_parameters(stage);
  for (const sharding::UnitGradients& unit : stages_.GradientsOf(stage)) {
    for (const int i : unit.positions) {
      RETURN_IF_ERROR(
          reducer_->Add(parameters[i], gradients.empty() ? at::Tensor() : gradients[i]));
    }
    if (unit.completes) {
      RETURN_IF_ERROR(reducer_->Complete(unit.unit));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ShardedTransformer::HeadResults> ShardedTransformer::ForwardSteps(Pass& pass) {
  gatherer_->Begin(stages_.UnitsOfSteps(/*backward=*/false));
  PassOps ops(*this, pass, /*loss=*/nullptr);
  ASSIGN_OR_RETURN(const at::Tensor x, sharding::ForwardPass(ops, stages_));
  if (pass.without_rows) {
    const at::Tensor none = at::empty({0}, at::TensorOptions(at::kFloat).device(options_.device));
    return HeadResults{none, none, none};
  }
  const PhaseClock::Scope scope(clock_, Phase::kHead);
  return GatherRows(pass.slice, RunHead(pass, SelectRows(pass, x)), options_.mesh->sequence());
}

absl::StatusOr<at::Tensor> ShardedTransformer::ForwardBackwardSteps(Pass& pass,
                                                                    const HeadLoss& loss) {
  if (expert_use_ != nullptr) expert_use_->Begin(pass.token_uses);
  if (router_losses_ != nullptr) {
    router_losses_->Begin(
        pass.token_uses,
        pass.update_tokens * static_cast<double>(NumExpertLayers(transformer_.spec())));
  }
  gatherer_->Begin(stages_.UnitsOfSteps(/*backward=*/true));
  PassOps ops(*this, pass, &loss);
  RETURN_IF_ERROR(sharding::TrainingPass(ops, stages_));
  return ops.loss_value();
}

absl::Status ShardedTransformer::PassOps::EnterForward(int stage) {
  pass_.place = stage == model_.stages_.head() ? "head" : StageName(stage);
  return model_.gatherer_->Enter(stage);
}

absl::Status ShardedTransformer::PassOps::EnterBackward(int stage) {
  pass_.place = absl::StrCat(StageName(stage), ", backward");
  return model_.gatherer_->Enter(model_.stages_.BackwardStep(stage));
}

PhaseClock::Scope ShardedTransformer::PassOps::TimeForward(int stage) {
  return PhaseClock::Scope(model_.clock_, Phase::kForward, StageName(stage));
}

PhaseClock::Scope ShardedTransformer::PassOps::TimeBackward(int stage) {
  return PhaseClock::Scope(model_.clock_, Phase::kBackward, StageName(stage));
}

at::Tensor ShardedTransformer::PassOps::RunStage(int stage, const at::Tensor& input,
                                                 sharding::Saves saves, Graph& graph) {
  const at::AutoGradMode grad_mode(saves != sharding::Saves::kNothing);
  const model::Transformer& transformer = model_.transformer_;
  const UnitGatherer& parameters = *model_.gatherer_;
  if (stage == 0) return model_.Embed(pass_);
  const bool selective = saves == sharding::Saves::kSelected;
  model::RouterPass routers;
  routers.replay = pass_.replay.get();
  if (counts_load()) {
    routers.load = &model_.expert_load_;
    routers.losses = model_.router_losses_.get();
    routers.use = model_.expert_use_.get();
    routers.is_recomputed = saves != model_.stages_.SavesOf(stage);
  }
  at::Tensor x = transformer.Block(parameters, stage - 1, input, pass_.rotary, *pass_.attention,
                                   selective ? &graph : nullptr, &routers);
  if (selective) graph.Drop();
  return x;
}

at::Tensor ShardedTransformer::PassOps::Detach(const at::Tensor& x, bool needs_gradient) {
  return x.detach().requires_grad_(needs_gradient);
}

absl::StatusOr<at::Tensor> ShardedTransformer::PassOps::Head(at::Tensor x) {
  RETURN_IF_ERROR(model_.FinishRouterLosses(pass_));
  return model_.HeadStep(pass_, std::move(x), *loss_, loss_value_);
}

at::Tensor ShardedTransformer::PassOps::Backward(int stage, Boundary& boundary,
                                                 const at::Tensor& gradient,
                                                 std::vector<at::Tensor>& gradients) {
  boundary.graph.Restore();
  std::vector<at::Tensor> inputs = model_.StageLeaves(stage);
  if (boundary.input.defined()) inputs.push_back(boundary.input);
  if (boundary.output.requires_grad()) {
    gradients = GradientsOf({boundary.output}, {gradient}, inputs);
  } else {
    gradients.resize(inputs.size());  // a frozen embedding, and no image for the trained tower
  }
  if (!boundary.input.defined()) return at::Tensor();
  at::Tensor input_gradient = std::move(gradients.back());  // undefined if no earlier stage trains
  gradients.pop_back();
  return input_gradient;
}

absl::Status ShardedTransformer::PassOps::AddGradients(int stage,
                                                       absl::Span<const at::Tensor> gradients) {
  return model_.AddGradients(stage, gradients);
}

absl::Status ShardedTransformer::PassOps::FinishGradients() {
  pass_.place = "gradients";
  return model_.reducer_->Finish();
}

absl::Status ShardedTransformer::FinishRouterLosses(const Pass& pass) {
  if (router_losses_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(SumOverTokens(router_losses_->sums(), "the routers' losses"));
  router_losses_->Finish();
  return absl::OkStatus();
}

absl::Status ShardedTransformer::SumOverTokens(at::Tensor& sums, const char* what) {
  // Tensor-parallel ranks route the same tokens.
  if (options_.mesh->tensor().rank() != 0) sums.zero_();
  ASSIGN_OR_RETURN(auto work, options_.mesh->world().AllReduce(sums, comm::ReduceOp::kSum, what));
  return work->Wait();
}

absl::Status ShardedTransformer::MoveCorrectionBiases(double rate) {
  if (expert_use_ == nullptr) return absl::OkStatus();
  if (rate == 0) {
    expert_use_->Clear();
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(SumOverTokens(expert_use_->sums(), "the experts' loads"));
  return Guarded<absl::Status>(options_.mesh->rank(), "moving correction biases", [&] {
    const at::NoGradGuard no_grad;
    for (int64_t layer = 0; layer < transformer_.spec().num_layers(); ++layer) {
      MoveCorrectionBias(layer, rate);
    }
    for (size_t u = 0; u < shards_.size(); ++u) {
      if (!transformer_.table().units()[u].moved) continue;
      MasterChanged(static_cast<int>(u), 0, shards_[u].master.numel());
    }
    expert_use_->Clear();
    return absl::OkStatus();
  });
}

void ShardedTransformer::MoveCorrectionBias(int64_t layer, double rate) {
  const model::ParameterTable& table = transformer_.table();
  const auto& experts = table.layer(layer).experts;
  const int index = experts.has_value() ? experts->router.correction_bias : -1;
  if (index < 0 || !table.parameter(index).moved) return;
  const model::Parameter& parameter = table.parameter(index);
  const UnitShard& shard = shards_[parameter.unit];
  const int64_t begin = std::max(parameter.offset, shard.offset);
  const int64_t end =
      std::min(parameter.offset + parameter.numel, shard.offset + shard.master.numel());
  if (begin >= end) return;
  const at::Tensor loads = expert_use_->OfLayer(layer);
  const at::Tensor step = ((loads.mean() - loads).sign() * rate).to(shard.master.options());
  shard.master.narrow(0, begin - shard.offset, end - begin)
      .add_(step.narrow(0, begin - parameter.offset, end - begin));
}

absl::StatusOr<at::Tensor> ShardedTransformer::HeadStep(Pass& pass, at::Tensor x,
                                                        const HeadLoss& loss,
                                                        at::Tensor& loss_value) {
  at::Tensor x_gradient;
  std::vector<at::Tensor> gradients;
  if (!pass.without_rows) {
    const PhaseClock::Scope scope(clock_, Phase::kHead);
    const at::AutoGradMode grad_mode(true);
    const at::Tensor selected =
        SelectRows(pass, x).detach().requires_grad_(stages_.HasBackward(stages_.head() - 1));
    HeadResults computed = RunHead(pass, selected);
    // The loss sees leaves, so that its graph ends at the head's results; and all rows of the
    // batch, on every rank that has a slice of it.
    const HeadResults leaves = GatherRows(pass.slice, computed, options_.mesh->sequence());
    for (const at::Tensor& leaf : leaves) leaf.requires_grad_();
    const at::Tensor loss_tensor = loss(leaves);
    loss_value = loss_tensor.detach();
    std::vector<at::Tensor> loss_gradients(leaves.size());
    if (loss_tensor.requires_grad()) loss_gradients = GradientsOf({loss_tensor}, {}, leaves);
    std::vector<at::Tensor> outputs;
    std::vector<at::Tensor> output_gradients;
    for (size_t i = 0; i < computed.size(); ++i) {
      if (!loss_gradients[i].defined()) continue;
      outputs.push_back(computed[i]);
      output_gradients.push_back(
          loss_gradients[i].narrow(0, pass.slice.first_row, pass.rows.numel()));
    }
    computed.clear();
    std::vector<at::Tensor> inputs = StageLeaves(stages_.head());
    inputs.push_back(selected);
    gradients.resize(inputs.size());
    if (!outputs.empty()) gradients = GradientsOf(outputs, output_gradients, inputs);
    x_gradient = std::move(gradients.back());
    gradients.pop_back();
    if (x_gradient.defined() && !pass.all_rows) {
      const at::NoGradGuard no_grad;
      const at::ScalarType type = x_gradient.scalar_type();
      if (pass.distinct_rows) {
        at::Tensor spread = at::zeros(x.sizes(), x_gradient.options());
        spread.index_copy_(0, pass.rows, x_gradient);
        x_gradient = std::move(spread);
      } else {
        // A prompt's last row predicts the first token of every sample: summed, then rounded.
        at::Tensor spread = at::zeros(x.sizes(), x_gradient.options().dtype(at::kFloat));
        spread.index_add_(0, pass.rows, x_gradient.to(at::kFloat));
        x_gradient = spread.to(type);
      }
    }
  }
  const bool of_routers = router_losses_ != nullptr && !pass.without_rows;
  if (!x_gradient.defined() && !pass.empty &&
      (transformer_.expert_group() != nullptr || of_routers)) {
    // The peers' gradients travel to the experts and back, so this rank takes part; and losses of
    // routers have gradients without the head's.
    x_gradient = at::zeros(x.sizes(), x.options());
  }
  RETURN_IF_ERROR(AddGradients(stages_.head(), gradients));
  return x_gradient;
}

}  // namespace tandem::trainer
