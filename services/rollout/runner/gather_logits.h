// Gathers full-vocabulary logits from the ranks' vocabulary shards.
#ifndef TANDEM_SERVICES_ROLLOUT_RUNNER_GATHER_LOGITS_H_
#define TANDEM_SERVICES_ROLLOUT_RUNNER_GATHER_LOGITS_H_

#include <ATen/core/Tensor.h>

#include "common/model/transformer.h"

namespace tandem::rollout {

// part: [num_rows, this rank's part of the vocabulary], from model.Logits(). Returns [num_rows,
// vocab], contiguous, on the first rank of the model's tensor-parallel group, the only one that
// samples, and an undefined tensor on the others. Every rank must call it. Throws CollectiveError.
at::Tensor GatherLogits(const model::Transformer& model, const at::Tensor& part);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RUNNER_GATHER_LOGITS_H_
