// UpdateStatistics: statistics of a step's optimizer updates, summed over rows, micro-batches and
// ranks, so that they do not depend on how the work was split.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_UPDATE_STATISTICS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_UPDATE_STATISTICS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <array>
#include <cstddef>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "common/comm/device_mesh.h"

namespace tandem::trainer {

// Uses verl's names. Sorted, so that every rank and every run lists them alike.
using Metrics = std::map<std::string, double>;

// A token's two probabilities that differ by more than this count as the tail.
inline constexpr double kProbTail = 0.01;

// Holds one rank's sums until Reduce(). Used by the collective thread.
class UpdateStatistics {
 public:
  // Sums; those over tokens are already divided by the tokens of their mini-batch.
  enum Sum {
    kLoss,
    kPolicyLoss,
    kKlLoss,
    kTeacherLoss,
    kTeacherMass,  // of the probability that the teacher's likeliest tokens have
    kClipFraction,
    kClipFractionLower,
    kPolicyKl,  // old against current policy
    kEntropy,
    kProbDifference,  // |p of the trainer - p of the rollout|, and its square and count
    kProbDifferenceSquare,
    kProbDifferenceCount,
    kProbDifferenceTail,  // count of those above kProbTail
    kNumSums,
  };

  void Add(Sum sum, double value) { sums_[sum] += value; }

  // Compares the probabilities of sampled tokens; skips those that the rollout did not state (NaN).
  void AddProbDifferences(const at::Tensor& logprobs, const at::Tensor& rollout_logprobs);

  // Sums over the ranks; ranks that computed the same count once. Collective: every rank calls it,
  // with or without rows. `device` is the one on which the mesh moves tensors.
  absl::Status Reduce(const comm::DeviceMesh& mesh, at::Device device);

  // Call after Reduce().
  double Get(Sum sum) const { return sums_[sum]; }
  // training/rollout_probs_diff_{mean,max,std}, and _tail: the share of the tokens whose
  // probabilities differ by more than kProbTail. Adds none if nothing was compared.
  void AddProbDifferenceMetrics(Metrics& metrics) const;

 private:
  std::array<double, kNumSums> sums_{};
  double max_prob_difference_ = 0;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_UPDATE_STATISTICS_H_
