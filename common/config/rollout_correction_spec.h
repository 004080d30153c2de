// Parses the text fields of algorithm.rollout_correction: thresholds and rejection rules, under
// verl's names.
#ifndef TANDEM_COMMON_CONFIG_ROLLOUT_CORRECTION_SPEC_H_
#define TANDEM_COMMON_CONFIG_ROLLOUT_CORRECTION_SPEC_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::config {

// Bounds of an importance weight: clipped to at most `high`; or, if `masks`, 0 outside [low, high].
struct WeightBounds {
  double low = 0.0;
  double high = 2.0;
  bool masks = false;
};

// Parses "2" or "0.5_5". INVALID_ARGUMENT says what was expected and found.
absl::StatusOr<WeightBounds> ParseWeightBounds(absl::string_view threshold);

// Returns algorithm.rollout_correction.rollout_is with `auto` resolved: token if samples are older
// than the policy that trains on them and bypass_mode does not correct that, otherwise none.
v1::RolloutIs ResolveRolloutIs(const v1::RunConfig& config);

// Keeps a token if low <= statistic <= high.
struct RejectionRule {
  enum class Level { kToken, kSequenceSum, kSequenceMean, kSequenceMax };
  enum class Measure { kLogRatio, kK1, kK2, kK3 };

  std::string name;  // as in the configuration
  Level level = Level::kToken;
  Measure measure = Measure::kLogRatio;
  // Bounds of the statistic: logarithms for kLogRatio and kK1, which the configuration states as
  // ratios.
  double low = 0.0;
  double high = 0.0;
};

// Parses `rules` such as "token_k1,seq_mean_k3" and `thresholds` such as "0.5_2,0.01", one for all
// or one for each. Empty if `rules` is empty, "none" or "null". INVALID_ARGUMENT names the rule or
// the threshold.
absl::StatusOr<std::vector<RejectionRule>> ParseRejectionRules(absl::string_view rules,
                                                               absl::string_view thresholds);

}  // namespace tandem::config

#endif  // TANDEM_COMMON_CONFIG_ROLLOUT_CORRECTION_SPEC_H_
