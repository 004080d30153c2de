#include "services/trainer/fsdp/sharded_transformer.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/comm/shareable_memory.h"
#include "common/model/parallel_fit.h"
#include "common/sharding/shard_extent.h"
#include "common/status/status_macros.h"
#include "common/weights/bfloat16_cast.h"
#include "services/trainer/fsdp/guarded.h"
#include "services/trainer/fsdp/shard_init.h"
#include "services/trainer/fsdp/tensor_memory.h"

namespace tandem::trainer {
namespace {

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

int64_t NumExperts(const model::ModelSpec& spec) {
  for (const model::LayerSpec& layer : spec.layers) {
    if (layer.experts.has_value()) return layer.experts->num_experts;
  }
  return 0;
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

std::vector<std::vector<int64_t>> ShardedTransformer::TakeExpertRows() {
  return expert_load_.Take();
}

model::RouterLosses::Values ShardedTransformer::TakeRouterLosses() {
  return router_losses_ == nullptr ? model::RouterLosses::Values() : router_losses_->Take();
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

}  // namespace tandem::trainer
