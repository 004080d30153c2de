#include <string>

#include "absl/strings/match.h"
#include "common/config/checks/checks.h"
#include "common/config/rollout_correction_spec.h"

namespace tandem::config {
namespace {

void CheckRolloutCorrection(const v1::RolloutCorrectionConfig& correction, Checker* check) {
  const std::string section = "algorithm.rollout_correction.";
  if (const auto bounds = ParseWeightBounds(correction.rollout_is_threshold()); !bounds.ok()) {
    check->Fail(section + "rollout_is_threshold", bounds.status().message());
  }
  const auto rules =
      ParseRejectionRules(correction.rollout_rs(), correction.rollout_rs_threshold());
  if (!rules.ok()) {
    const bool of_rules = absl::StartsWith(rules.status().message(), "expected rules");
    check->Fail(section + (of_rules ? "rollout_rs" : "rollout_rs_threshold"),
                rules.status().message());
  }
  const bool is_reinforce = correction.loss_type() == v1::CORRECTION_LOSS_TYPE_REINFORCE;
  if (is_reinforce && !correction.bypass_mode()) {
    check->Fail(section + "loss_type", "reinforce needs bypass_mode=true");
  }
  if (correction.bypass_mode() && !is_reinforce && correction.rollout_is() != v1::ROLLOUT_IS_NONE &&
      correction.rollout_is() != v1::ROLLOUT_IS_AUTO) {
    check->Fail(section + "rollout_is",
                "expected none: with bypass_mode the loss's ratio already uses the rollout's "
                "probabilities; set only one of the two");
  }
}

}  // namespace

void CheckFilterGroups(const v1::RunConfig& config, Checker* check) {
  const v1::FilterGroupsConfig& filter = config.algorithm().filter_groups();
  check->Integer("algorithm.filter_groups.max_num_gen_batches", filter.max_num_gen_batches(), 0);
  check->Integer("data.gen_batch_size", config.data().gen_batch_size(), 0);
  if (config.data().gen_batch_size() > 0 && !filter.enable()) {
    check->Fail("data.gen_batch_size", "needs algorithm.filter_groups.enable, which is false");
  }
}

void CheckAlgorithm(const v1::AlgorithmConfig& algorithm, const v1::RewardConfig& reward,
                    Checker* check) {
  const auto share = [check](const std::string& key, double value) {
    check->Number(key, value, value >= 0 && value <= 1, "in [0, 1]");
  };
  share("algorithm.gamma", algorithm.gamma());
  share("algorithm.lam", algorithm.lam());
  const v1::KlControlConfig& control = algorithm.kl_ctrl();
  check->AtLeastZero("algorithm.kl_ctrl.kl_coef", control.kl_coef());
  check->Integer("algorithm.kl_ctrl.horizon", control.horizon(), 1);
  check->Number("algorithm.kl_ctrl.target_kl", control.target_kl(), control.target_kl() > 0, "> 0");
  if (algorithm.adv_estimator() == v1::ADV_ESTIMATOR_GDPO && algorithm.use_kl_in_reward()) {
    check->Fail("algorithm.use_kl_in_reward",
                "expected false with algorithm.adv_estimator gdpo, which normalises each reward by "
                "itself; use actor.use_kl_loss");
  }
  if (algorithm.adv_estimator() == v1::ADV_ESTIMATOR_GDPO && reward.overlong_buffer().enable()) {
    check->Fail("reward.overlong_buffer.enable",
                "expected false with algorithm.adv_estimator gdpo, which would leave the penalty "
                "out; make it one of reward.rewards");
  }
  CheckRolloutCorrection(algorithm.rollout_correction(), check);
}

}  // namespace tandem::config
