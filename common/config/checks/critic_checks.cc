#include "common/config/checks/checks.h"

namespace tandem::config {

void CheckCritic(const v1::RunConfig& config, Checker* check) {
  const v1::CriticConfig& critic = config.critic();
  CheckOptim("critic.optim.", critic.optim(), check);
  CheckMiniBatch("critic.ppo_mini_batch_size", critic.ppo_mini_batch_size(),
                 config.data().train_batch_size(), check);
  check->Integer("critic.ppo_epochs", critic.ppo_epochs(), 0);
  check->Number("critic.cliprange_value", critic.cliprange_value(), critic.cliprange_value() > 0,
                "> 0");
  check->Integer("trainer.critic_warmup", config.trainer().critic_warmup(), 0);
  if (config.trainer().critic_warmup() > 0 &&
      config.algorithm().adv_estimator() != v1::ADV_ESTIMATOR_GAE) {
    check->Fail("trainer.critic_warmup", "needs algorithm.adv_estimator gae");
  }
}

}  // namespace tandem::config
