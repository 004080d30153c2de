#include "services/trainer/optim/adamw.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

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

// Float64 [1] on the gradients' device.
at::Tensor SumOfSquares(const std::vector<UnitShard>& shards) {
  if (shards.front().grad.is_cpu()) {
    double sum = 0;
    for (const UnitShard& shard : shards) sum += SumOfSquaresOnCpu(shard.grad);
    return at::full({1}, sum, at::kDouble);
  }
  at::Tensor sum = at::zeros({1}, shards.front().grad.options().dtype(at::kDouble));
  for (const UnitShard& shard : shards) {
    sum += at::linalg_vector_norm(shard.grad).to(at::kDouble).square();
  }
  return sum;
}

}  // namespace

AdamW::AdamW(AdamWOptions options, ShardedModel& model, const comm::DeviceMesh& mesh)
    : options_(options), model_(model), mesh_(mesh) {
  for (const UnitShard& shard : model_.shards()) {
    first_moments_.push_back(at::zeros_like(shard.master));
    second_moments_.push_back(at::zeros_like(shard.master));
  }
}

absl::StatusOr<AdamW::StepResult> AdamW::Step(double learning_rate) {
  try {
    const at::NoGradGuard no_grad;
    RETURN_IF_ERROR(model_.ReduceGradients());
    std::vector<UnitShard>& shards = model_.shards();
    at::Tensor sum;
    {
      const PhaseClock::Scope scope(clock_, Phase::kOptimizer);
      sum = SumOfSquares(shards);
    }
    {
      const PhaseClock::Scope scope(clock_, Phase::kNormWait);
      ASSIGN_OR_RETURN(auto work,
                       mesh_.shard().AllReduce(sum, comm::ReduceOp::kSum, "gradient norm"));
      RETURN_IF_ERROR(work->Wait());
    }

    StepResult result;
    result.grad_norm = std::sqrt(sum.item<double>());
    // Every rank has the same sum and so decides alike.
    result.skipped = !std::isfinite(result.grad_norm);
    if (!result.skipped) {
      const PhaseClock::Scope scope(clock_, Phase::kOptimizer);
      Update(shards, learning_rate, ClipFactor(result.grad_norm));
      model_.MastersChanged();
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

void AdamW::Update(std::vector<UnitShard>& shards, double learning_rate, double clip_factor) {
  ++num_steps_;
  std::vector<at::Tensor> masters;
  std::vector<at::Tensor> gradients;
  for (UnitShard& shard : shards) {
    masters.push_back(shard.master);
    gradients.push_back(shard.grad);
  }
  const at::TensorOptions float32 = masters.front().options();
  const std::vector<at::Tensor> steps(masters.size(),
                                      at::full({}, static_cast<double>(num_steps_), float32));
  // The kernel divides by the scale while it reads, which spares a pass over the gradients.
  std::optional<at::Tensor> scale;
  if (clip_factor < 1.0) scale = at::full({}, 1.0 / clip_factor, float32);
  at::_fused_adamw_(masters, gradients, first_moments_, second_moments_, /*max_exp_avg_sqs=*/{},
                    steps, learning_rate, options_.beta1, options_.beta2, options_.weight_decay,
                    options_.eps, /*amsgrad=*/false, /*maximize=*/false, scale);
}

}  // namespace tandem::trainer
