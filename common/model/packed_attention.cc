#include "common/model/packed_attention.h"

#include <ATen/ops/empty.h>

#include "common/model/eager_ops.h"

namespace tandem::model {

at::Tensor PackedAttention::Forward(int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                    const at::Tensor& v, const AttentionParams& params) {
  return eager::PackedAttention(q, k, v, cu_seqlens_, params);
}

at::Tensor PackedPositions(const at::Tensor& cu_seqlens) {
  const int64_t num_sequences = cu_seqlens.numel() - 1;
  const int64_t* const starts = cu_seqlens.const_data_ptr<int64_t>();
  at::Tensor positions = at::empty({starts[num_sequences]}, at::kLong);
  int64_t* const out = positions.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < num_sequences; ++i) {
    for (int64_t t = starts[i]; t < starts[i + 1]; ++t) out[t] = t - starts[i];
  }
  return positions;
}

}  // namespace tandem::model
