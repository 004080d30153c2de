#include "common/config/rollout_correction_spec.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/config/nearest.h"
#include "common/status/status_macros.h"

namespace tandem::config {
namespace {

using Level = RejectionRule::Level;
using Measure = RejectionRule::Measure;

const std::vector<RejectionRule>& KnownRules() {
  static const auto* const rules = new std::vector<RejectionRule>{
      {"token", Level::kToken, Measure::kLogRatio},
      {"sequence", Level::kSequenceSum, Measure::kLogRatio},
      {"geometric", Level::kSequenceMean, Measure::kLogRatio},
      {"token_k1", Level::kToken, Measure::kK1},
      {"token_k2", Level::kToken, Measure::kK2},
      {"token_k3", Level::kToken, Measure::kK3},
      {"seq_sum_k1", Level::kSequenceSum, Measure::kK1},
      {"seq_sum_k2", Level::kSequenceSum, Measure::kK2},
      {"seq_sum_k3", Level::kSequenceSum, Measure::kK3},
      {"seq_mean_k1", Level::kSequenceMean, Measure::kK1},
      {"seq_mean_k2", Level::kSequenceMean, Measure::kK2},
      {"seq_mean_k3", Level::kSequenceMean, Measure::kK3},
      {"seq_max_k2", Level::kSequenceMax, Measure::kK2},
      {"seq_max_k3", Level::kSequenceMax, Measure::kK3},
  };
  return *rules;
}

std::vector<std::string> Parts(absl::string_view text) {
  std::vector<std::string> out;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    part = absl::StripAsciiWhitespace(part);
    if (!part.empty()) out.emplace_back(part);
  }
  return out;
}

// A parsed "HIGH" or "LOW_HIGH".
struct Range {
  double low = 0.0;
  double high = 0.0;
  bool has_low = false;
};

absl::StatusOr<Range> ParseRange(absl::string_view text) {
  const std::vector<std::string> ends = absl::StrSplit(absl::StripAsciiWhitespace(text), '_');
  Range out;
  out.has_low = ends.size() == 2;
  if (ends.size() <= 2 && absl::SimpleAtod(ends.back(), &out.high) && std::isfinite(out.high) &&
      out.high > 0 && (!out.has_low || absl::SimpleAtod(ends.front(), &out.low)) && out.low >= 0 &&
      out.low <= out.high) {
    return out;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "expected HIGH or LOW_HIGH, with 0 <= LOW <= HIGH and 0 < HIGH, found \"", text, "\""));
}

absl::Status SetBounds(const std::string& threshold, RejectionRule* rule) {
  ASSIGN_OR_RETURN(const Range range, ParseRange(threshold));
  if (rule->measure == Measure::kLogRatio || rule->measure == Measure::kK1) {
    const double low = range.has_low ? range.low : 1.0 / range.high;
    if (low > range.high) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected a single number of at least 1, which means 1/HIGH_HIGH, found \"",
                       threshold, "\"; write LOW_HIGH for other bounds"));
    }
    rule->low = std::log(low);
    rule->high = std::log(range.high);
    return absl::OkStatus();
  }
  if (range.has_low) {
    return absl::InvalidArgumentError(
        absl::StrCat(rule->name, " takes only a largest value, found \"", threshold, "\""));
  }
  rule->low = -std::numeric_limits<double>::infinity();
  rule->high = range.high;
  return absl::OkStatus();
}

absl::StatusOr<RejectionRule> FindRule(const std::string& name) {
  std::vector<std::string> names;
  for (const RejectionRule& rule : KnownRules()) {
    if (rule.name == name) return rule;
    names.push_back(rule.name);
  }
  const std::string nearest = Nearest(name, names);
  return absl::InvalidArgumentError(
      absl::StrCat("expected rules of ", absl::StrJoin(names, ", "), ", found \"", name, "\"",
                   nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?")));
}

}  // namespace

absl::StatusOr<WeightBounds> ParseWeightBounds(absl::string_view threshold) {
  ASSIGN_OR_RETURN(const Range range, ParseRange(threshold));
  return WeightBounds{range.low, range.high, range.has_low};
}

v1::RolloutIs ResolveRolloutIs(const v1::RunConfig& config) {
  const v1::RolloutCorrectionConfig& correction = config.algorithm().rollout_correction();
  if (correction.rollout_is() != v1::ROLLOUT_IS_AUTO) return correction.rollout_is();
  const v1::TrainerConfig& trainer = config.trainer();
  const bool lags = trainer.mode() == v1::TRAINING_MODE_ONE_STEP_OFF ||
                    (trainer.mode() == v1::TRAINING_MODE_ASYNC && trainer.max_staleness() > 0);
  return lags && !correction.bypass_mode() ? v1::ROLLOUT_IS_TOKEN : v1::ROLLOUT_IS_NONE;
}

absl::StatusOr<std::vector<RejectionRule>> ParseRejectionRules(absl::string_view rules,
                                                               absl::string_view thresholds) {
  std::vector<RejectionRule> out;
  std::vector<std::string> names = Parts(rules);
  if (names.size() == 1 && (names[0] == "none" || names[0] == "null")) names.clear();
  if (names.empty()) return out;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(RejectionRule rule, FindRule(name));
    out.push_back(std::move(rule));
  }
  const std::vector<std::string> bounds = Parts(thresholds);
  if (bounds.size() != 1 && bounds.size() != names.size()) {
    return absl::InvalidArgumentError(absl::StrCat("expected one threshold, or ", names.size(),
                                                   ", one for each rule of rollout_rs, found ",
                                                   bounds.size()));
  }
  for (size_t i = 0; i < out.size(); ++i) {
    RETURN_IF_ERROR(SetBounds(bounds[bounds.size() == 1 ? 0 : i], &out[i]));
  }
  return out;
}

}  // namespace tandem::config
