#include "services/trainer/optim/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <exception>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "services/trainer/fsdp/offload_file.h"
#include "services/trainer/optim/non_finite_gradient.h"

namespace tandem::trainer {
namespace {

// Float32 sums of this many squares are added up in float64, so that a norm does not depend on how
// the parameters are cut into shards.
constexpr int64_t kElementsPerSum = 1 << 14;

double SumOfSquaresOnCpu(const at::Tensor& x) {
  double sum = 0;
  for (int64_t begin = 0; begin < x.numel(); begin += kElementsPerSum) {
    const at::Tensor part = x.narrow(0, begin, std::min(kElementsPerSum, x.numel() - begin));
    sum += at::dot(part, part).item<float>();
  }
  return sum;
}

}  // namespace

Optimizer::Optimizer(double grad_clip, ShardedModel& model, const comm::DeviceMesh& mesh)
    : grad_clip_(grad_clip), model_(model), mesh_(mesh), clock_(model.compute_device()) {
  const std::vector<UnitShard>& shards = model_.shards();
  for (size_t u = 0; u < shards.size(); ++u) {
    if (shards[u].grad.defined()) trained_units_.push_back(u);
  }
}

void Optimizer::Reset() {
  const at::NoGradGuard no_grad;
  for (const size_t u : trained_units_) {
    for (ShardState& state : StateOf(u)) {
      state.tensor.zero_();
      Evict(state.tensor);
    }
  }
  model_.ZeroGradients();
  num_steps_ = 0;
}

int64_t Optimizer::state_bytes() const {
  int64_t bytes = 0;
  for (const size_t u : trained_units_) {
    for (const ShardState& state : StateOf(u)) bytes += static_cast<int64_t>(state.tensor.nbytes());
  }
  return bytes;
}

std::vector<Optimizer::Counted> Optimizer::CountedParts(const UnitShard& shard,
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

at::Tensor Optimizer::SumsOfSquares(const std::vector<UnitShard>& shards) const {
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

absl::StatusOr<Optimizer::StepResult> Optimizer::Step(double learning_rate) {
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
      ++num_steps_;
      RETURN_IF_ERROR(Update(shards, learning_rate, ClipFactor(result.grad_norm)));
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

double Optimizer::ClipFactor(double grad_norm) const {
  if (grad_clip_ <= 0) return 1.0;
  return std::min(1.0, grad_clip_ / (grad_norm + 1e-6));
}

}  // namespace tandem::trainer
