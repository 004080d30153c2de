#include "services/trainer/optim/adamw.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <optional>

#include "services/trainer/fsdp/offload_file.h"

namespace tandem::trainer {
namespace {

// Elements that each CPU thread updates before MasterChanged() derives the compute copy and the
// digest from them, while they are still in its cache.
constexpr int64_t kElementsPerUpdate = 1 << 16;

}  // namespace

AdamW::AdamW(AdamWOptions options, ShardedModel& model, const comm::DeviceMesh& mesh)
    : Optimizer(options.grad_clip, model, mesh), options_(options) {
  const std::vector<UnitShard>& shards = model.shards();
  first_moments_.resize(shards.size());
  second_moments_.resize(shards.size());
  for (const size_t u : trained_units()) {
    first_moments_[u] = model.NewState(shards[u].master.numel());
    second_moments_[u] = model.NewState(shards[u].master.numel());
  }
}

std::vector<Optimizer::ShardState> AdamW::StateOf(size_t unit) const {
  if (!first_moments_[unit].defined()) return {};
  const std::vector<model::Range> all = {{0, first_moments_[unit].numel()}};
  return {{kFirstMoment, first_moments_[unit], all}, {kSecondMoment, second_moments_[unit], all}};
}

std::vector<at::Tensor> AdamW::TouchedBy(const UnitShard& shard, size_t unit) const {
  return {shard.master, shard.grad, first_moments_[unit], second_moments_[unit]};
}

double AdamW::RateOf(size_t unit) const {
  const model::ParameterTable& table = model().transformer().table();
  const int first = table.units()[unit].parameters.front();
  return table.parameter(first).group == "vision" ? options_.vision_lr_ratio : 1.0;
}

absl::Status AdamW::Update(std::vector<UnitShard>& shards, double learning_rate,
                           double clip_factor) {
  const at::TensorOptions float32 = shards[trained_units().front()].master.options();
  const at::Tensor steps = at::full({}, static_cast<double>(num_steps()), float32);
  // The kernel divides by the scale while it reads, which saves a pass over the gradients.
  std::optional<at::Tensor> scale;
  if (clip_factor < 1.0) scale = at::full({}, 1.0 / clip_factor, float32);
  for (size_t i = 0; i < trained_units().size(); ++i) {
    const size_t u = trained_units()[i];
    if (i + 1 < trained_units().size()) {
      const size_t next = trained_units()[i + 1];
      for (const at::Tensor& tensor : TouchedBy(shards[next], next)) Prefetch(tensor);
    }
    const double rate = learning_rate * RateOf(u);
    const int64_t numel = shards[u].master.numel();
    const int64_t at_once =
        shards[u].master.is_cpu() ? kElementsPerUpdate * at::get_num_threads() : numel;
    for (int64_t begin = 0; begin < numel; begin += at_once) {
      const int64_t count = std::min(at_once, numel - begin);
      const auto part = [&](const at::Tensor& all) { return all.narrow(0, begin, count); };
      at::_fused_adamw_({part(shards[u].master)}, {part(shards[u].grad)}, {part(first_moments_[u])},
                        {part(second_moments_[u])},
                        /*max_exp_avg_sqs=*/{}, {steps}, rate, options_.beta1, options_.beta2,
                        options_.weight_decay, options_.eps, /*amsgrad=*/false,
                        /*maximize=*/false, scale);
      model().MasterChanged(static_cast<int>(u), begin, begin + count);
    }
    for (const at::Tensor& tensor : TouchedBy(shards[u], u)) Evict(tensor);
  }
  return absl::OkStatus();
}

}  // namespace tandem::trainer
