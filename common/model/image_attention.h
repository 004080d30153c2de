// ImageAttention: attention of every token to all tokens of its segment, before and behind it: of
// an image, or of a window in it. Vision towers use it.
//
//   ImageAttention attention({0, 192, 256});  // two images
//   const at::Tensor out = attention.Forward(/*layer=*/0, q, k, v, params);
#ifndef TANDEM_COMMON_MODEL_IMAGE_ATTENTION_H_
#define TANDEM_COMMON_MODEL_IMAGE_ATTENTION_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <cstdint>
#include <vector>

#include "common/model/attention.h"

namespace tandem::model {

// On the CPU a token's result depends on its segment alone, bit for bit: segments are the sequences
// of kernels/attention.h. Elsewhere products and a softmax compute a head of a segment at a time.
class ImageAttention : public Attention {
 public:
  // ends: 0, the end of the first segment, ..., the number of tokens; never decreasing.
  explicit ImageAttention(const std::vector<int64_t>& ends)
      : cu_seqlens_(at::tensor(ends, at::kLong)) {}

  // Differentiable. As many key-value heads as query heads; of `params` only the scale. On the CPU
  // score memory is that of one block of queries; elsewhere the scores of at most kMaxScores elements
  // exist at once when no graph is recorded.
  at::Tensor Forward(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionParams& params) override;

  // 64 MiB of float32, for any number of tokens up to a million.
  static constexpr int64_t kMaxScores = int64_t{1} << 24;

 private:
  const at::Tensor cu_seqlens_;  // int64 [segments + 1], on the CPU
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_IMAGE_ATTENTION_H_
