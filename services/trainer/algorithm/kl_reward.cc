#include "services/trainer/algorithm/kl_reward.h"

#include <ATen/ATen.h>

#include <cstddef>
#include <vector>

namespace tandem::trainer {
namespace {

at::Tensor ToTensor(const std::vector<float>& values) {
  return at::tensor(values, at::kFloat).to(at::kDouble);
}

}  // namespace

double PenalizeDivergence(TrainingBatch& batch, KlEstimator estimator, double coefficient) {
  double sum_of_means = 0;
  double num_sequences = 0;
  for (Sequence& sequence : batch.sequences) {
    if (sequence.trained.empty()) continue;
    const at::Tensor kl =
        KlLoss(ToTensor(sequence.old_logprobs), ToTensor(sequence.ref_logprobs), estimator)
            .contiguous();
    const double* of_token = kl.const_data_ptr<double>();
    double sum = 0;
    for (size_t t = 0; t < sequence.trained.size(); ++t) {
      sequence.token_rewards[t] -= coefficient * of_token[t];
      sum += of_token[t];
    }
    sequence.kl_penalty = coefficient * sum;
    sum_of_means += sum / static_cast<double>(sequence.trained.size());
    ++num_sequences;
  }
  return num_sequences > 0 ? sum_of_means / num_sequences : 0.0;
}

}  // namespace tandem::trainer
