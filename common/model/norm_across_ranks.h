// Norms of q and k over all heads at once, where tensor-parallel ranks have some heads each: their
// statistics are sums over the ranks.
#ifndef TANDEM_COMMON_MODEL_NORM_ACROSS_RANKS_H_
#define TANDEM_COMMON_MODEL_NORM_ACROSS_RANKS_H_

#include <ATen/core/Tensor.h>

#include "common/comm/process_group.h"
#include "common/model/layers/attention_spec.h"
#include "common/model/rotary.h"

namespace tandem::model {

// Returns the projection [num_tokens, q + 2 kv] of this rank's heads with q and k normed by
// rotation.norm, an RMS norm over all heads before the rotation, and v as it is. Two collectives
// forward and two backward. Differentiable. Throws CollectiveError. CheckTensorParallel()
// (parallel_fit.h) refuses other norms over all heads.
at::Tensor NormAcrossRanks(const at::Tensor& qkv, const HeadRotation& rotation,
                           const AttentionSpec& spec, comm::ProcessGroup& group);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_NORM_ACROSS_RANKS_H_
