#include "services/trainer/algorithm/policy_loss.h"

#include "services/trainer/algorithm/cispo_loss.h"
#include "services/trainer/algorithm/gspo_loss.h"
#include "services/trainer/algorithm/ppo_clip_loss.h"
#include "services/trainer/algorithm/sapo_loss.h"

namespace tandem::trainer {

PolicyLoss ComputePolicyLoss(const PolicyLossOptions& options, const at::Tensor& logprobs,
                             const at::Tensor& old_logprobs, const at::Tensor& advantages,
                             const SequenceRows& rows) {
  switch (options.mode) {
    case PolicyLossMode::kGspo:
      return GspoLoss(logprobs, old_logprobs, advantages, rows, options.clip);
    case PolicyLossMode::kCispo:
      return CispoLoss(logprobs, old_logprobs, advantages, options.clip);
    case PolicyLossMode::kSapo:
      return SapoLoss(logprobs, old_logprobs, advantages, options.tau_positive,
                      options.tau_negative);
    case PolicyLossMode::kVanilla:
      break;
  }
  return PpoClipLoss(logprobs, old_logprobs, advantages, options.clip);
}

bool IsMeanOverSequences(PolicyLossMode mode) {
  return mode == PolicyLossMode::kGspo || mode == PolicyLossMode::kSapo;
}

}  // namespace tandem::trainer
