// Logits of the whole vocabulary out of those of each rank's part.
#ifndef TANDEM_SERVICES_ROLLOUT_RUNNER_GATHER_LOGITS_H_
#define TANDEM_SERVICES_ROLLOUT_RUNNER_GATHER_LOGITS_H_

#include <ATen/core/Tensor.h>

#include "common/model/transformer.h"

namespace tandem::rollout {

// part: [num_rows, this rank's part of the vocabulary], what model.Logits() gives. Returns
// [num_rows, vocab], contiguous, on the first rank of the model's tensor-parallel group, which
// alone samples, and an undefined tensor on the others. Every rank calls it. Throws
// CollectiveError.
at::Tensor GatherLogits(const model::Transformer& model, const at::Tensor& part);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RUNNER_GATHER_LOGITS_H_
