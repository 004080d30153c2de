#include "common/config/checks/checks.h"

namespace tandem::config {

void CheckActor(const v1::RunConfig& config, Checker* check) {
  const v1::ActorConfig& actor = config.actor();
  CheckOptim("actor.optim.", actor.optim(), check);
  check->Integer("actor.ppo_epochs", actor.ppo_epochs(), 1);
  check->Number("actor.clip_ratio_low", actor.clip_ratio_low(),
                actor.clip_ratio_low() >= 0 && actor.clip_ratio_low() <= 1, "in [0, 1]");
  check->AtLeastZero("actor.clip_ratio_high", actor.clip_ratio_high());
  check->Number("actor.clip_ratio_c", actor.clip_ratio_c(),
                actor.clip_ratio_c() == 0 || actor.clip_ratio_c() > 1, "> 1, or 0");
  check->AtLeastZero("actor.kl_loss_coef", actor.kl_loss_coef());
  check->Number("actor.entropy_coeff", actor.entropy_coeff(), true, "that is finite");
  check->AtLeastZero("actor.loss_scale_factor", actor.loss_scale_factor());
  check->Number("actor.tau_pos", actor.tau_pos(), actor.tau_pos() > 0, "> 0");
  check->Number("actor.tau_neg", actor.tau_neg(), actor.tau_neg() > 0, "> 0");
  const v1::PolicyLossConfig& loss = actor.policy_loss();
  check->AtLeastZero("actor.policy_loss.dro_beta", loss.dro_beta());
  check->Number("actor.policy_loss.clip_cov_ratio", loss.clip_cov_ratio(),
                loss.clip_cov_ratio() >= 0 && loss.clip_cov_ratio() <= 1, "in [0, 1]");
  check->Number("actor.policy_loss.clip_cov_lb", loss.clip_cov_lb(), true, "that is finite");
  check->Number("actor.policy_loss.clip_cov_ub", loss.clip_cov_ub(),
                loss.clip_cov_ub() > loss.clip_cov_lb(), "above clip_cov_lb");
  check->Number("actor.policy_loss.kl_cov_ratio", loss.kl_cov_ratio(),
                loss.kl_cov_ratio() >= 0 && loss.kl_cov_ratio() <= 1, "in [0, 1]");
  check->AtLeastZero("actor.policy_loss.ppo_kl_coef", loss.ppo_kl_coef());
  check->Number("actor.top_entropy_quantile", actor.top_entropy_quantile(),
                actor.top_entropy_quantile() > 0 && actor.top_entropy_quantile() <= 1, "in (0, 1]");

  check->AtLeastZero("actor.router_aux_loss_coef", actor.router_aux_loss_coef());
  check->AtLeastZero("actor.router_z_loss_coef", actor.router_z_loss_coef());
  check->AtLeastZero("actor.router_bias_update_rate", actor.router_bias_update_rate());
  check->AtLeastZero("actor.vision_lr", actor.vision_lr());
  CheckMiniBatch("actor.ppo_mini_batch_size", actor.ppo_mini_batch_size(),
                 config.data().train_batch_size(), check);
}

}  // namespace tandem::config
