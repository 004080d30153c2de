#include "common/model/head.h"

#include <ATen/ops/log_softmax.h>

#include "common/model/linear.h"

namespace tandem::model {

LogProbs ChunkedLogProbs(const at::Tensor& hidden, const at::Tensor& weight,
                         const at::Tensor& targets, const at::Tensor& temperatures) {
  const at::Tensor logits =
      Linear(hidden, weight).to(at::kFloat) / temperatures.unsqueeze(1);
  const at::Tensor logprobs = at::log_softmax(logits, -1);
  return {logprobs.gather(1, targets.unsqueeze(1)).squeeze(1),
          -(logprobs.exp() * logprobs).sum(-1)};
}

}  // namespace tandem::model
