#include "services/rollout/sampler/logit_adjustments.h"

namespace tandem::rollout {

AdjustmentBase::AdjustmentBase(const PenaltyParams& params, const std::vector<int32_t>& prompt_ids)
    : repetition_(static_cast<float>(params.repetition)),
      frequency_(static_cast<float>(params.frequency)),
      presence_(static_cast<float>(params.presence)) {
  for (const auto& [id, bias] : params.logit_bias) entries_[id].bias = bias;
  if (params.repetition == 1.0) return;
  for (const int32_t id : prompt_ids) entries_[id].in_prompt = true;
}

float LogitAdjustments::Adjusted(float logit, const AdjustmentBase::Entry& entry,
                                 int32_t count) const {
  logit += entry.bias;
  if (base_->repetition_ != 1.0f && (entry.in_prompt || count > 0)) {
    logit = logit > 0.0f ? logit / base_->repetition_ : logit * base_->repetition_;
  }
  if (count > 0) {
    logit -= base_->frequency_ * static_cast<float>(count);
    logit -= base_->presence_;
  }
  return logit;
}

void LogitAdjustments::Apply(float* logits, int64_t vocab_size) const {
  // A token's change depends on the token alone, so the order of the maps makes no difference.
  for (const auto& [id, entry] : base_->entries_) {
    const auto counted = counts_.find(id);
    const int32_t count = counted == counts_.end() ? 0 : counted->second;
    if (id < vocab_size) logits[id] = Adjusted(logits[id], entry, count);
  }
  for (const auto& [id, count] : counts_) {
    if (id >= vocab_size || base_->entries_.contains(id)) continue;
    logits[id] = Adjusted(logits[id], {}, count);
  }
}

}  // namespace tandem::rollout
