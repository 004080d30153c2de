// Attention over a batch of packed sequences: the one part of the forward in which trainer and
// rollout differ, because one sees whole sequences and the other a paged cache.
#ifndef TANDEM_COMMON_MODEL_ATTENTION_H_
#define TANDEM_COMMON_MODEL_ATTENTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "common/model/rotary.h"

namespace tandem::model {

// What a layer asks of attention besides its tensors.
struct AttentionParams {
  double scale = 1.0;    // of q . k, usually 1 / sqrt(head_dim)
  double softcap = 0.0;  // scores become softcap * tanh(score / softcap); 0: none
  int64_t window = 0;    // each token sees so many tokens, itself included; 0: all
  std::optional<at::Tensor>
      sinks;  // [num_heads] extra logits that take probability and give nothing
};

class Attention {
 public:
  virtual ~Attention() = default;

  // Causal attention of layer `layer` for the tokens of the batch.
  //   q [num_tokens, num_heads, head_dim], k and v [num_tokens, num_kv_heads, head_dim], rotated;
  //   may be strided views of one fused tensor, last dim contiguous.
  // Returns [num_tokens, num_heads * head_dim], in q's dtype, softmax in float32.
  // Differentiable where grad mode is on and the implementation is the trainer's.
  virtual at::Tensor Forward(int64_t layer, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const AttentionParams& params) = 0;

  // The same of a fused projection (rotary.h) whose heads are not rotated yet: for callers who keep
  // no q, k and v. Rotates, then attends; an implementation may do both at once.
  virtual at::Tensor ForwardProjected(int64_t layer, const at::Tensor& qkv,
                                      const HeadRotation& rotation, const AttentionParams& params) {
    const Qkv heads = RotateQkv(qkv, rotation);
    return Forward(layer, heads.q, heads.k, heads.v, params);
  }
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_ATTENTION_H_
