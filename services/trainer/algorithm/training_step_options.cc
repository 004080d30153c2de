#include "services/trainer/algorithm/training_step_options.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/summary.h"
#include "common/config/teacher.h"
#include "services/trainer/algorithm/preference_loss.h"

namespace tandem::trainer {
namespace {

namespace proto = config::v1;

KlEstimator EstimatorOf(proto::KlLossType type) {
  switch (type) {
    case proto::KL_LOSS_TYPE_K1:
    case proto::KL_LOSS_TYPE_KL:
      return KlEstimator::kK1;
    case proto::KL_LOSS_TYPE_ABS:
      return KlEstimator::kAbs;
    case proto::KL_LOSS_TYPE_K2:
    case proto::KL_LOSS_TYPE_MSE:
      return KlEstimator::kK2;
    case proto::KL_LOSS_TYPE_K1_PLUS:
      return KlEstimator::kK1Plus;
    case proto::KL_LOSS_TYPE_K3_PLUS:
    case proto::KL_LOSS_TYPE_LOW_VAR_KL_PLUS:
      return KlEstimator::kK3Plus;
    default:
      return KlEstimator::kK3;
  }
}

RolloutCorrectionOptions CorrectionOf(const proto::RunConfig& run) {
  const proto::RolloutCorrectionConfig& config = run.algorithm().rollout_correction();
  RolloutCorrectionOptions out;
  out.bypass = config.bypass_mode();
  const proto::RolloutIs level = config::ResolveRolloutIs(run);
  if (level == proto::ROLLOUT_IS_TOKEN) out.weights.level = RolloutIs::kToken;
  if (level == proto::ROLLOUT_IS_SEQUENCE) out.weights.level = RolloutIs::kSequence;
  out.weights.batch_normalize = config.rollout_is_batch_normalize();
  // The configuration has been validated: both parse.
  if (const auto bounds = config::ParseWeightBounds(config.rollout_is_threshold()); bounds.ok()) {
    out.weights.bounds = *bounds;
  }
  auto rules = config::ParseRejectionRules(config.rollout_rs(), config.rollout_rs_threshold());
  if (rules.ok()) out.rules = *std::move(rules);
  return out;
}

TeacherOptions TeacherOf(const proto::RunConfig& run) {
  const proto::TeacherConfig& config = run.teacher();
  TeacherOptions out;
  out.on_policy = config::DistilsOnPolicy(run);
  out.in_advantages = config.mode() != proto::DISTILLATION_MODE_LOSS;
  out.coef = config.coef();
  out.reward_coef = config.reward_coef();
  if (config::DistilsTopK(run)) out.top_k = config.top_k();
  return out;
}

}  // namespace

model::RouterLossFactors RouterLossesOf(const config::v1::ActorConfig& actor) {
  return {.balance = actor.router_aux_loss_coef(), .z = actor.router_z_loss_coef()};
}

LossAggregation AggregationOf(config::v1::LossAggMode mode) {
  switch (mode) {
    case proto::LOSS_AGG_MODE_TOKEN_SUM:
      return LossAggregation::kTokenSum;
    case proto::LOSS_AGG_MODE_SEQ_MEAN_TOKEN_SUM:
      return LossAggregation::kSeqMeanTokenSum;
    case proto::LOSS_AGG_MODE_SEQ_MEAN_TOKEN_MEAN:
      return LossAggregation::kSeqMeanTokenMean;
    case proto::LOSS_AGG_MODE_SEQ_MEAN_TOKEN_SUM_NORM:
      return LossAggregation::kSeqMeanTokenSumNorm;
    default:
      return LossAggregation::kTokenMean;
  }
}

absl::Status CheckAlgorithm(const config::v1::RunConfig& config) {
  const auto unknown = [](const char* key, const std::string& value) {
    return absl::UnimplementedError(
        absl::StrCat(key, ": ", value, " is a configuration value without an implementation"));
  };
  const proto::PolicyLossMode mode = config.actor().policy_loss().loss_mode();
  if (FindPolicyLoss(mode) == nullptr) {
    return unknown("actor.policy_loss.loss_mode", proto::PolicyLossMode_Name(mode));
  }
  const proto::AdvEstimator estimator = config.algorithm().adv_estimator();
  if (FindAdvantages(estimator) == nullptr) {
    return unknown("algorithm.adv_estimator", proto::AdvEstimator_Name(estimator));
  }
  const proto::DpoLossType preference = config.dpo().loss_type();
  if (FindPreferenceLoss(preference) == nullptr) {
    return unknown("dpo.loss_type", proto::DpoLossType_Name(preference));
  }
  return absl::OkStatus();
}

TrainingStepOptions MakeTrainingStepOptions(const config::v1::RunConfig& config) {
  const proto::ActorConfig& actor = config.actor();
  const proto::AlgorithmConfig& algorithm = config.algorithm();
  TrainingStepOptions out;
  out.advantages.kind = FindAdvantages(algorithm.adv_estimator());
  out.advantages.divide_by_std = algorithm.norm_adv_by_std_in_grpo();
  out.advantages.gamma = algorithm.gamma();
  out.advantages.lam = algorithm.lam();
  out.correction = CorrectionOf(config);
  out.masks_truncated = algorithm.mask_truncated_completions();
  out.use_kl_in_reward = algorithm.use_kl_in_reward();
  out.kl_penalty = EstimatorOf(algorithm.kl_penalty());
  const proto::KlControlConfig& control = algorithm.kl_ctrl();
  out.kl_controller.adaptive = control.type() == proto::KL_CONTROL_TYPE_ADAPTIVE;
  out.kl_controller.coefficient = control.kl_coef();
  out.kl_controller.horizon = static_cast<double>(control.horizon());
  out.kl_controller.target = control.target_kl();

  const proto::RolloutCorrectionConfig& correction = algorithm.rollout_correction();
  out.objective.policy_loss = FindPolicyLoss(actor.policy_loss().loss_mode());
  if (correction.loss_type() == proto::CORRECTION_LOSS_TYPE_REINFORCE) {
    // The weights are part of the loss, from the current policy, not factors of it.
    out.objective.policy_loss = &kReinforceLoss;
    out.objective.policy.weights = std::exchange(out.correction.weights, {});
  }
  const proto::PolicyLossConfig& loss = actor.policy_loss();
  out.objective.policy.dro_beta = loss.dro_beta();
  out.objective.policy.clip_cov_ratio = loss.clip_cov_ratio();
  out.objective.policy.clip_cov_low = loss.clip_cov_lb();
  out.objective.policy.clip_cov_high = loss.clip_cov_ub();
  out.objective.policy.kl_cov_ratio = loss.kl_cov_ratio();
  out.objective.policy.kl_cov_coefficient = loss.ppo_kl_coef();
  out.top_entropy_share = actor.top_entropy_quantile();
  out.objective.policy.clip = {actor.clip_ratio_low(), actor.clip_ratio_high(),
                               actor.clip_ratio_c()};
  out.objective.policy.tau_positive = actor.tau_pos();
  out.objective.policy.tau_negative = actor.tau_neg();
  out.objective.use_kl_loss = actor.use_kl_loss();
  out.objective.kl_loss_coef = actor.kl_loss_coef();
  out.objective.kl_estimator = EstimatorOf(actor.kl_loss_type());
  out.objective.weights_kl = actor.use_bias_correction_kl();
  out.objective.entropy_coeff = actor.entropy_coeff();
  out.teacher = TeacherOf(config);
  if (out.teacher.on_policy && !out.teacher.in_advantages) {
    out.objective.teacher_loss_coef = out.teacher.coef;
  }

  out.mini_batch.groups_each = actor.ppo_mini_batch_size();
  if (out.teacher.on_policy && out.teacher.top_k > 0) {
    out.mini_batch.teacher_targets = TeacherTargets::kBeside;
  }
  out.mini_batch.aggregation = AggregationOf(actor.loss_agg_mode());
  out.mini_batch.loss_scale = actor.loss_scale_factor() > 0
                                  ? actor.loss_scale_factor()
                                  : static_cast<double>(config::LongestCompletion(config));
  out.mini_batch.max_tokens_per_micro_batch = config.trainer().max_tokens_per_micro_batch();
  out.epochs = std::max<int64_t>(1, actor.ppo_epochs());
  out.router_losses = RouterLossesOf(actor);
  out.router_bias_rate = actor.router_bias_update_rate();
  return out;
}

}  // namespace tandem::trainer
