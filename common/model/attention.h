// Attention over a batch of packed sequences. It is the one part of the forward pass in which
// trainer and rollout differ: the trainer sees whole sequences, the rollout a paged cache.
#ifndef TANDEM_COMMON_MODEL_ATTENTION_H_
#define TANDEM_COMMON_MODEL_ATTENTION_H_

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <optional>

#include "common/model/delta_attention.h"
#include "common/model/kernels/alibi.h"
#include "common/model/kernels/window.h"
#include "common/model/rotary.h"

namespace tandem::model {

// Parameters of a layer's attention besides its tensors.
struct AttentionParams {
  double scale = 1.0;    // of q . k, usually 1 / sqrt(head_dim)
  double softcap = 0.0;  // scores become softcap * tanh(score / softcap); 0: none
  Alibi alibi;           // added after that
  Window window;         // tokens that each token sees
  // [num_heads] extra scores that take probability but have no value.
  std::optional<at::Tensor> sinks;
};

class Attention {
 public:
  virtual ~Attention() = default;

  // Computes causal attention of layer `layer` for the tokens of the batch.
  //   q [num_tokens, num_heads, head_dim] and k [num_tokens, num_kv_heads, head_dim], rotated, and
  //   v [num_tokens, num_kv_heads, v_head_dim], which may be strided views of one fused tensor, last
  //   dim contiguous.
  // Returns [num_tokens, num_heads * v_head_dim] in q's dtype; the softmax is float32. The trainer's
  // implementation is differentiable in grad mode, also with respect to the sinks.
  virtual at::Tensor Forward(int64_t layer, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const AttentionParams& params) = 0;

  // Whether the keys and values that Forward() was given in this pass are still there for later layers, as
  // a cache has them: layers that read another one's then call ForwardQueries().
  virtual bool KeepsKeys() const { return false; }

  // Like Forward(), with the keys and values of layer `kv_layer`, which is before this one. Only if
  // KeepsKeys(); not differentiable.
  virtual at::Tensor ForwardQueries(int64_t kv_layer, const at::Tensor& q,
                                    const AttentionParams& params) {
    TORCH_CHECK(false, "this attention keeps no keys for later layers");
  }

  // Whether the cache holds latents (LatentCache): layers with a latent then call ForwardLatents().
  virtual bool CachesLatents() const { return false; }

  // Like Forward() with one key-value head for all query heads. latents: [num_tokens, kv_rank +
  // rope_dim], the latent and the rotated key part of each token: its key; its value is the latent.
  // q: [num_tokens, num_heads, kv_rank + rope_dim]. Returns [num_tokens, num_heads * kv_rank].
  // Only if CachesLatents(); not differentiable.
  virtual at::Tensor ForwardLatents(int64_t layer, const at::Tensor& q, const at::Tensor& latents,
                                    const AttentionParams& params) {
    TORCH_CHECK(false, "this attention has no cache of latents");
  }

  // Linear attention of layer `layer` (delta_attention.h) for the tokens of the batch. Returns
  // [num_tokens, value_size]. Differentiable in the trainer's implementation.
  virtual at::Tensor ForwardDelta(int64_t layer, const DeltaSpec& spec,
                                  const DeltaTensors& tensors) {
    TORCH_CHECK(false, "this attention keeps no state for linear attention");
  }

  // Like Forward(), but takes a fused projection (rotary.h) whose heads are not rotated yet, for
  // callers that do not keep q, k and v. Rotates, then attends; an implementation may fuse the two.
  virtual at::Tensor ForwardProjected(int64_t layer, const at::Tensor& qkv,
                                      const HeadRotation& rotation, const AttentionParams& params) {
    const Qkv heads = RotateQkv(qkv, rotation);
    return Forward(layer, heads.q, heads.k, heads.v, params);
  }
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_ATTENTION_H_
