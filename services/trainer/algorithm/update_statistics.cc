#include "services/trainer/algorithm/update_statistics.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "common/status/status_macros.h"

namespace tandem::trainer {

void UpdateStatistics::AddProbDifferences(const at::Tensor& logprobs,
                                          const at::Tensor& rollout_logprobs) {
  const at::Tensor trainer = logprobs.detach().to(at::kCPU, at::kFloat);
  const at::Tensor stated = rollout_logprobs.isfinite();
  const at::Tensor difference =
      (trainer.exp() - rollout_logprobs.exp()).abs().masked_select(stated).to(at::kDouble);
  if (difference.numel() == 0) return;
  Add(kProbDifference, difference.sum().item<double>());
  Add(kProbDifferenceSquare, difference.square().sum().item<double>());
  Add(kProbDifferenceCount, static_cast<double>(difference.numel()));
  Add(kProbDifferenceTail, difference.gt(kProbTail).sum().item<double>());
  max_prob_difference_ = std::max(max_prob_difference_, difference.max().item<double>());
}

absl::Status UpdateStatistics::Reduce(const comm::DeviceMesh& mesh, at::Device device) {
  if (!mesh.leads_data_rank()) sums_.fill(0);
  at::Tensor sums = at::empty({kNumSums}, at::kDouble);
  std::copy(sums_.begin(), sums_.end(), sums.data_ptr<double>());
  sums = sums.to(device);
  at::Tensor largest = at::full({1}, max_prob_difference_, at::dtype(at::kDouble).device(device));
  ASSIGN_OR_RETURN(auto sum_work,
                   mesh.world().AllReduce(sums, comm::ReduceOp::kSum, "step statistics"));
  RETURN_IF_ERROR(sum_work->Wait());
  ASSIGN_OR_RETURN(auto max_work,
                   mesh.world().AllReduce(largest, comm::ReduceOp::kMax, "step maxima"));
  RETURN_IF_ERROR(max_work->Wait());
  const at::Tensor reduced = sums.to(at::kCPU);
  std::copy_n(reduced.data_ptr<double>(), sums_.size(), sums_.begin());
  max_prob_difference_ = largest.item<double>();
  return absl::OkStatus();
}

void UpdateStatistics::AddProbDifferenceMetrics(Metrics& metrics) const {
  const double count = Get(kProbDifferenceCount);
  if (count == 0) return;
  const double mean = Get(kProbDifference) / count;
  const double squares = std::max(0.0, Get(kProbDifferenceSquare) - count * mean * mean);
  metrics["training/rollout_probs_diff_mean"] = mean;
  metrics["training/rollout_probs_diff_max"] = max_prob_difference_;
  metrics["training/rollout_probs_diff_tail"] = Get(kProbDifferenceTail) / count;
  metrics["training/rollout_probs_diff_std"] = count > 1 ? std::sqrt(squares / (count - 1)) : 0.0;
}

}  // namespace tandem::trainer
