#include "services/trainer/algorithm/teacher.h"

#include <ATen/ATen.h>

#include <cmath>
#include <cstddef>

namespace tandem::trainer {

void AddTeacherAdvantages(TrainingBatch& batch, const TeacherOptions& options) {
  for (Sequence& sequence : batch.sequences) {
    for (size_t t = 0; t < sequence.trained.size(); ++t) {
      double advantage = options.reward_coef * sequence.advantages[t];
      if (options.in_advantages) {
        advantage += options.coef * (static_cast<double>(sequence.teacher_logprobs[t]) -
                                     static_cast<double>(sequence.rollout_logprobs[t]));
      }
      sequence.advantages[t] = static_cast<float>(advantage);
    }
  }
}

void AddTeacherKl(const TrainingBatch& batch, Metrics& metrics) {
  double sum = 0;
  int64_t count = 0;
  for (const Sequence& sequence : batch.sequences) {
    for (size_t t = 0; t < sequence.trained.size(); ++t) {
      if (std::isnan(sequence.rollout_logprobs[t])) continue;
      sum += static_cast<double>(sequence.rollout_logprobs[t]) -
             static_cast<double>(sequence.teacher_logprobs[t]);
      ++count;
    }
  }
  if (count > 0) metrics["actor/teacher_kl"] = sum / static_cast<double>(count);
}

TeacherSums SumTeacher(const at::Tensor& top_probs, const at::Tensor& weights) {
  const at::Tensor p = top_probs.to(at::kDouble);
  const at::Tensor w = weights.to(at::kDouble).unsqueeze(1);
  return {(at::xlogy(p, p) * w).sum().item<double>(), (p * w).sum().item<double>()};
}

}  // namespace tandem::trainer
