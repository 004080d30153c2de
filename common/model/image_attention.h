// ImageAttention: attention of every token to all tokens of its segment, before and behind it: of
// an image, or of a window in it. Vision towers use it.
//
//   ImageAttention attention({0, 192, 256});  // two images
//   const at::Tensor out = attention.Forward(/*layer=*/0, q, k, v, params);
#ifndef TANDEM_COMMON_MODEL_IMAGE_ATTENTION_H_
#define TANDEM_COMMON_MODEL_IMAGE_ATTENTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "common/model/attention.h"
#include "common/model/fused_attention.h"
#include "common/model/packed_attention.h"

namespace tandem::model {

// On the CPU, and on a GPU with exact numerics, a token's result depends on its segment alone, bit for
// bit: segments are the sequences of kernels/attention.h, or of the decoding kernel
// (device_packed_attention.h). With fast numerics a GPU computes all segments in one launch of a fused
// kernel (fused_attention.h), and shapes that it does not take in chunks of queries
// (chunked_attention.h).
class ImageAttention : public Attention {
 public:
  // ends: 0, the end of the first segment, ..., the number of tokens; never decreasing.
  explicit ImageAttention(const std::vector<int64_t>& ends);

  // Differentiable. As many key-value heads as query heads; of `params` only the scale. Score memory is
  // that of one block of queries.
  at::Tensor Forward(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionParams& params) override;

 private:
  const at::Tensor cu_seqlens_;  // int64 [segments + 1], on the CPU
  // Made at the first layer that needs them.
  FusedSequences sequences_;
  std::optional<PackedAttention> packed_;  // whose tokens see to the end of their segment
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_IMAGE_ATTENTION_H_
