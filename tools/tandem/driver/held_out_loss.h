// HeldOutLoss: the loss of the trainer's policy on given rows that are not trained on.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_HELD_OUT_LOSS_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_HELD_OUT_LOSS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tandem/trainer/v1/trainer_service.pb.h"
#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/run_folder.h"

namespace tandem::driver {

// Used by one thread.
class HeldOutLoss {
 public:
  // Has a trainer compute log-probs: TrainerClient::ComputeLogProbs().
  using Score = std::function<absl::StatusOr<trainer::v1::ComputeLogProbsResponse>(
      const trainer::v1::ComputeLogProbsRequest&)>;

  // Measures the first data.test_limit of the rows that give sequences. `by_preference`: each row
  // gives a pair, for the loss of dpo (dpo.loss_type); otherwise the loss is that of sft.
  HeldOutLoss(const config::v1::RunConfig& config, const std::vector<Prompt>& rows,
              bool by_preference, Score score);

  // No row gives sequences.
  bool empty() const { return rows_.empty(); }

  // Adds val/loss: the mean over trained tokens of -log p, or over pairs of dpo's loss, then with
  // val/accuracy, the share of pairs whose chosen completion is preferred.
  absl::Status Measure(Metrics& metrics);

 private:
  // Sum of the log-probs of each sequence's trained tokens, row after row.
  absl::StatusOr<std::vector<double>> SumLogProbs(bool of_reference);
  // What dpo.loss_type compares: the same sums, or their means over the trained tokens.
  absl::StatusOr<std::vector<double>> ScorePairs(bool of_reference);
  absl::Status MeasureTokens(Metrics& metrics);
  absl::Status MeasurePairs(Metrics& metrics);

  const config::v1::DpoConfig dpo_;
  const bool by_preference_;
  const Score score_;
  std::vector<std::vector<GivenSequence>> rows_;
  std::vector<std::vector<PromptImage>> images_;  // of each row
  std::vector<double> reference_;                 // scores under the reference, which do not change
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_HELD_OUT_LOSS_H_
