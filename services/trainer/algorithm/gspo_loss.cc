#include "services/trainer/algorithm/gspo_loss.h"

#include <ATen/ATen.h>

namespace tandem::trainer {

PolicyLoss GspoLoss(const at::Tensor& logprobs, const at::Tensor& old_logprobs,
                    const at::Tensor& advantages, const SequenceRows& rows,
                    const ClipOptions& options) {
  const at::Tensor log_ratio = (logprobs - old_logprobs).detach();
  const at::Tensor of_sequence = rows.Spread(rows.Mean(log_ratio));
  const at::Tensor ratio = (logprobs - logprobs.detach() + of_sequence).clamp_max(10.0).exp();
  const at::Tensor unclipped = -advantages * ratio;
  const at::Tensor clipped = -advantages * ratio.clamp(1.0 - options.low, 1.0 + options.high);
  PolicyLoss out;
  out.loss = at::maximum(unclipped, clipped);
  out.clipped = clipped.gt(unclipped).to(logprobs.scalar_type());
  out.clipped_lower = at::zeros_like(out.clipped);
  out.log_ratio = log_ratio;
  return out;
}

}  // namespace tandem::trainer
