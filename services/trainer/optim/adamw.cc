#include "services/trainer/optim/adamw.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "services/trainer/fsdp/offload_file.h"
#include "services/trainer/optim/non_finite_gradient.h"

namespace tandem::trainer {
namespace {

// Float32 sums of this many squares are added up in float64, so that a norm does not depend on how
// the parameters are cut into shards.
constexpr int64_t kElementsPerSum = 1 << 14;

// Elements that each CPU thread updates before MasterChanged() derives the compute copy and the
// digest from them, while they are still in its cache.
constexpr int64_t kElementsPerUpdate = 1 << 16;

double SumOfSquaresOnCpu(const at::Tensor& x) {
  double sum = 0;
  for (int64_t begin = 0; begin < x.numel(); begin += kElementsPerSum) {
    const at::Tensor part = x.narrow(0, begin, std::min(kElementsPerSum, x.numel() - begin));
    sum += at::dot(part, part).item<float>();
  }
  return sum;
}

}  // namespace

AdamW::AdamW(AdamWOptions options, ShardedModel& model, const comm::DeviceMesh& mesh)
    : options_(options), model_(model), mesh_(mesh), clock_(model.device_streams()) {
  const std::vector<UnitShard>& shards = model_.shards();
  first_moments_.resize(shards.size());
  second_moments_.resize(shards.size());
  for (size_t u = 0; u < shards.size(); ++u) {
    if (!shards[u].grad.defined()) continue;
    trained_units_.push_back(u);
    first_moments_[u] = model_.NewState(shards[u].master.numel());
    second_moments_[u] = model_.NewState(shards[u].master.numel());
  }
}

void AdamW::Reset() {
  const at::NoGradGuard no_grad;
  for (std::vector<at::Tensor>* moments : {&first_moments_, &second_moments_}) {
    for (const size_t u : trained_units_) {
      (*moments)[u].zero_();
      Evict((*moments)[u]);
    }
  }
  model_.ZeroGradients();
  num_steps_ = 0;
}

std::vector<AdamW::Counted> AdamW::CountedParts(const UnitShard& shard,
                                                const model::Unit& unit) const {
  const int64_t size = shard.grad.numel();
  if (mesh_.tensor().rank() == 0) return {{0, size}};
  // Replicated parameters count once, on the first tensor-parallel rank.
  std::vector<Counted> parts;
  const model::ParameterTable& table = model_.transformer().table();
  for (const int index : unit.parameters) {
    const model::Parameter& parameter = table.parameter(index);
    if (parameter.tensor_parallel.kind == model::Placement::Kind::kReplicate) continue;
    const int64_t begin = std::max<int64_t>(0, parameter.offset - shard.offset);
    const int64_t end = std::min(size, parameter.offset + parameter.numel - shard.offset);
    if (begin < end) parts.push_back({begin, end - begin});
  }
  return parts;
}

at::Tensor AdamW::SumsOfSquares(const std::vector<UnitShard>& shards) const {
  const std::vector<model::Unit>& units = model_.transformer().table().units();
  const at::Device device = shards[trained_units_.front()].grad.device();
  at::Tensor sums = at::zeros({static_cast<int64_t>(shards.size())},
                              at::TensorOptions(at::kDouble).device(device));
  for (size_t i = 0; i < trained_units_.size(); ++i) {
    const size_t u = trained_units_[i];
    if (i + 1 < trained_units_.size()) Prefetch(shards[trained_units_[i + 1]].grad);
    at::Tensor sum = sums[static_cast<int64_t>(u)];
    for (const Counted& part : CountedParts(shards[u], units[u])) {
      const at::Tensor gradient = shards[u].grad.narrow(0, part.begin, part.count);
      if (device.is_cpu()) {
        sum += SumOfSquaresOnCpu(gradient);
      } else {
        sum += at::linalg_vector_norm(gradient).to(at::kDouble).square();
      }
    }
    Evict(shards[u].grad);
  }
  return sums;
}

absl::StatusOr<AdamW::StepResult> AdamW::Step(double learning_rate) {
  try {
    const at::NoGradGuard no_grad;
    RETURN_IF_ERROR(model_.ReduceGradients());
    std::vector<UnitShard>& shards = model_.shards();
    at::Tensor sums;
    at::Tensor sum;
    {
      const PhaseClock::Scope scope(clock_, Phase::kOptimizer);
      sums = SumsOfSquares(shards);
      sum = sums.sum().to(model_.device());
    }
    for (comm::ProcessGroup* group : {&mesh_.shard(), &mesh_.tensor()}) {
      const PhaseClock::Scope scope(clock_, Phase::kNormWait);
      ASSIGN_OR_RETURN(auto work, group->AllReduce(sum, comm::ReduceOp::kSum, "gradient norm"));
      RETURN_IF_ERROR(work->Wait());
    }

    StepResult result;
    result.grad_norm = std::sqrt(sum.item<double>());
    // Every rank has the same sum, so all decide the same.
    result.skipped = !std::isfinite(result.grad_norm);
    if (!result.skipped) {
      const PhaseClock::Scope scope(clock_, Phase::kOptimizer);
      Update(shards, learning_rate, ClipFactor(result.grad_norm));
    } else {
      ASSIGN_OR_RETURN(result.cause, FindNonFiniteGradient(model_, sums, mesh_.world()));
    }
    model_.ZeroGradients();
    return result;
  } catch (const std::exception& e) {
    return absl::InternalError(
        absl::StrCat("rank ", mesh_.rank(), ", optimizer step ", num_steps_ + 1, ": ", e.what()));
  }
}

double AdamW::ClipFactor(double grad_norm) const {
  if (options_.grad_clip <= 0) return 1.0;
  return std::min(1.0, options_.grad_clip / (grad_norm + 1e-6));
}

std::vector<at::Tensor> AdamW::StateOf(const UnitShard& shard, size_t unit) const {
  return {shard.master, shard.grad, first_moments_[unit], second_moments_[unit]};
}

void AdamW::Update(std::vector<UnitShard>& shards, double learning_rate, double clip_factor) {
  ++num_steps_;
  const at::TensorOptions float32 = shards[trained_units_.front()].master.options();
  const at::Tensor steps = at::full({}, static_cast<double>(num_steps_), float32);
  // The kernel divides by the scale while it reads, which saves a pass over the gradients.
  std::optional<at::Tensor> scale;
  if (clip_factor < 1.0) scale = at::full({}, 1.0 / clip_factor, float32);
  for (size_t i = 0; i < trained_units_.size(); ++i) {
    const size_t u = trained_units_[i];
    if (i + 1 < trained_units_.size()) {
      const size_t next = trained_units_[i + 1];
      for (const at::Tensor& tensor : StateOf(shards[next], next)) Prefetch(tensor);
    }
    const int64_t numel = shards[u].master.numel();
    const int64_t at_once =
        shards[u].master.is_cpu() ? kElementsPerUpdate * at::get_num_threads() : numel;
    for (int64_t begin = 0; begin < numel; begin += at_once) {
      const int64_t count = std::min(at_once, numel - begin);
      const auto part = [&](const at::Tensor& all) { return all.narrow(0, begin, count); };
      at::_fused_adamw_({part(shards[u].master)}, {part(shards[u].grad)}, {part(first_moments_[u])},
                        {part(second_moments_[u])},
                        /*max_exp_avg_sqs=*/{}, {steps}, learning_rate, options_.beta1,
                        options_.beta2, options_.weight_decay, options_.eps, /*amsgrad=*/false,
                        /*maximize=*/false, scale);
      model_.MasterChanged(static_cast<int>(u), begin, begin + count);
    }
    for (const at::Tensor& tensor : StateOf(shards[u], u)) Evict(tensor);
  }
}

int64_t AdamW::state_bytes() const {
  int64_t bytes = 0;
  for (const size_t u : trained_units_) {
    bytes += static_cast<int64_t>(first_moments_[u].nbytes() + second_moments_[u].nbytes());
  }
  return bytes;
}

}  // namespace tandem::trainer
